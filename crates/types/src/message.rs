//! Messages between actors, and the outcomes of calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{ActorId, CallId, ChainId, Method, NodeId, TenantId, Time, TraceContext};

/// The caller of a call or tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Caller {
    /// A client outside the cluster.
    Client(NodeId),
    /// An actor.
    Actor(ActorId),
}

/// Values set by the application that propagate from caller to callee.
pub type RequestContext = Arc<[(Box<str>, Box<str>)]>;

/// The header of a message: everything but its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The call's id, which also determines the destination of the reply.
    pub call: CallId,
    /// The chain of nested calls it belongs to.
    pub chain: ChainId,
    /// The caller.
    pub caller: Caller,
    /// The tenant that it runs for.
    pub tenant: TenantId,
    /// The deadline, on the clock of the process that holds the message (see [`Header::change_clock`]).
    pub deadline: Option<Time>,
    /// Whether no reply is expected (a tell).
    pub one_way: bool,
    /// The CPU time that the caller expects it to need.
    pub expected_cost: Option<Duration>,
    /// The trace context.
    pub trace: Option<TraceContext>,
    /// When the event that caused this message entered the system, in milliseconds since the Unix epoch; 0 if unknown.
    pub source_time_ms: u64,
    /// The request context; `None` means empty and costs nothing.
    pub context: Option<RequestContext>,
    /// The request that this call is an attempt of, if it may be retried.
    pub request: Option<Request>,
}

/// Identifies the request that a call is an attempt of: an activation runs at most one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The request's number among those of the calling node.
    pub number: u64,
    /// The calling node retries no request below this number, so their dedup records may be discarded.
    pub settled_below: u64,
}

impl Header {
    /// The header of the first call of a chain, of the default tenant, without a deadline or any other context.
    pub fn of_call(call: CallId, caller: Caller) -> Self {
        Self {
            call,
            chain: ChainId(call),
            caller,
            tenant: TenantId::default(),
            deadline: None,
            one_way: false,
            expected_cost: None,
            trace: None,
            source_time_ms: 0,
            context: None,
            request: None,
        }
    }

    /// Translates the deadline to this process's clock. The sender's clock showed `theirs` at departure; ours shows
    /// `ours` now.
    pub fn change_clock(&mut self, theirs: Time, ours: Time) {
        let left = |deadline: Time| deadline.0.saturating_sub(theirs.0);
        self.deadline = self.deadline.map(|at| Time(ours.0.saturating_add(left(at))));
    }
}

/// A call or tell with encoded arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The receiving actor.
    pub target: ActorId,
    /// The header.
    pub header: Header,
    /// The function called.
    pub method: Method,
    /// The arguments, encoded.
    pub body: Bytes,
}

/// The outcome of a call: the encoded reply (application errors are replies too), or an error.
pub type Outcome = Result<Bytes, CallError>;

/// A call has no reply. The variants differ in what may have happened, and so in whether a retry is safe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CallError {
    /// The call did not run and never will: a retry is safe.
    #[error("the call was not delivered: {0}")]
    NotDelivered(NotDelivered),
    /// The call may have run, wholly or in part, or not at all. Retry only idempotent calls.
    #[error("the call may or may not have run: {0}")]
    Unknown(Unknown),
    /// The call did not run because of overload. Retry later.
    #[error("the call was refused because of overload: {0}")]
    Overloaded(Overloaded),
    /// The handler panicked. Unless the handler is read-only, the actor restarts from its last saved state, and
    /// interleaved turns fail with this error too.
    #[error("the actor panicked during the call")]
    Panicked,
    /// The call would deadlock: the call chain is already inside this actor.
    #[error("call cycle: the actor already waits for this chain of calls")]
    CallCycle,
    /// The caller abandoned the call, or the actor's node is shutting down. The call may have run.
    #[error("the call was cancelled")]
    Cancelled,
    /// No reply arrived in time. The call may have run or may still run.
    #[error("no reply arrived before the deadline")]
    DeadlineExceeded,
    /// The call is invalid. It did not run, and a retry fails again. If the reason concerns the reply, the call has
    /// run.
    #[error("the call was rejected: {0}")]
    Rejected(Rejected),
}

/// The reason why a call was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotDelivered {
    /// The actor's node could not be reached, and the call was not sent.
    #[error("its node can't be reached")]
    Unreachable,
    /// The actor is no longer on the node that received the call.
    #[error("the actor is not on that node")]
    NotHere,
    /// No server could take the actor.
    #[error("no server could take the actor")]
    NoPlace,
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The actor's saved state could not be loaded, so it could not be activated.
    #[error("the actor's state could not be loaded")]
    StateUnavailable,
}

/// The reason why it is unknown whether a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unknown {
    /// The node that received the call crashed or was partitioned.
    #[error("the node that received it was lost")]
    NodeLost,
    /// The call ran, but its effect could not be saved, so the actor was reset to its saved state.
    #[error("its effect could not be saved")]
    NotSaved,
}

/// The overloaded party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Overloaded {
    /// The actor: its mailbox is full.
    #[error("the actor's mailbox is full")]
    Actor,
    /// The tenant has exhausted its budget.
    #[error("the tenant has exhausted its budget")]
    Tenant,
    /// The whole node.
    #[error("the node is overloaded")]
    Node,
}

/// The reason why a call is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejected {
    /// No actor type of this name is registered.
    #[error("no actor type `{0}` is registered")]
    UnknownType(String),
    /// The actor type has no such function.
    #[error("actor type `{kind}` has no function `{method}`")]
    UnknownMethod {
        /// The actor type.
        kind: String,
        /// The function.
        method: String,
    },
    /// The arguments or the reply could not be decoded.
    #[error("{what} of `{method}` can't be decoded: {why}")]
    Undecodable {
        /// "the arguments" or "the reply".
        what: String,
        /// The function.
        method: String,
        /// The decoder's error.
        why: String,
    },
    /// The message, including its request context, exceeds the size limit between nodes. If the reply does, the call
    /// has run.
    #[error("a message or reply of {bytes} bytes is larger than the {max} bytes allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The key is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    #[error("an actor key of {bytes} bytes is too long")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A decoded reference was used outside any turn, where it has no host for its calls. Bind it to a client first.
    #[error("a decoded reference to a `{0}` is used outside any turn: bind it with `Client::bind` first")]
    Unbound(String),
}

impl CallError {
    /// Whether the call certainly did not run, so that a retry can't run it twice.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, CallError::NotDelivered(_) | CallError::Overloaded(_))
    }
}
