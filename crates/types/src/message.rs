//! What actors send each other, and how a call can end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{ActorId, CallId, ChainId, Method, NodeId, TenantId, Time, TraceContext};

/// Who called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Caller {
    /// Somebody outside the cluster, connected as this client.
    Client(NodeId),
    /// An actor.
    Actor(ActorId),
}

/// Values that flow along with calls from caller to callee, set by the application.
pub type RequestContext = Arc<[(Box<str>, Box<str>)]>;

/// What every message carries besides its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// This call; also where its reply goes.
    pub call: CallId,
    /// The chain of nested calls it belongs to.
    pub chain: ChainId,
    /// Who called.
    pub caller: Caller,
    /// On whose account it runs.
    pub tenant: TenantId,
    /// When the caller stops waiting, on the clock of the process that has the message (see [`Header::change_clock`]).
    pub deadline: Option<Time>,
    /// Nobody waits for a reply (a tell).
    pub one_way: bool,
    /// The CPU time that the caller expects it to take.
    pub expected_cost: Option<Duration>,
    /// Its place in a trace.
    pub trace: Option<TraceContext>,
    /// When the event that caused this message entered the system, in milliseconds since the Unix epoch; 0 if unknown.
    pub source_time_ms: u64,
    /// Values that flow along; `None` is the same as empty and costs nothing.
    pub context: Option<RequestContext>,
    /// The request that this call is one of, if it may be made again.
    pub request: Option<Request>,
}

/// What makes a call one of several of the same request: an activation runs one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The request's number among those of the node that the call comes from.
    pub number: u64,
    /// That node makes no call again of a request before this number, so what is remembered of them may be forgotten.
    pub settled_below: u64,
}

impl Header {
    /// A call that is the first of its chain, of the default tenant, without a deadline or anything else that flows along.
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

    /// The message came from a process whose clock showed `theirs` when it left, and `ours` is now on this one's.
    pub fn change_clock(&mut self, theirs: Time, ours: Time) {
        let left = |deadline: Time| deadline.0.saturating_sub(theirs.0);
        self.deadline = self.deadline.map(|at| Time(ours.0.saturating_add(left(at))));
    }
}

/// A call on its way, its arguments encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Whom it is for.
    pub target: ActorId,
    /// What every message carries.
    pub header: Header,
    /// The function called.
    pub method: Method,
    /// The arguments, encoded.
    pub body: Bytes,
}

/// How a call ended: the encoded reply (an error of the application is a reply too), or why there is none.
pub type Outcome = Result<Bytes, CallError>;

/// Why a call has no reply. The variants tell the caller what may have happened, and so whether to try again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CallError {
    /// The call did not run and never will: trying again is safe.
    #[error("the call was not delivered: {0}")]
    NotDelivered(NotDelivered),
    /// The call may have run, wholly or in part, or not at all. Try again only what may run twice.
    #[error("the call may or may not have run: {0}")]
    Unknown(Unknown),
    /// The call did not run because there is too much to do. Try again later.
    #[error("the call was turned away: {0}")]
    Overloaded(Overloaded),
    /// The handler panicked. Unless it only reads the actor, that starts again from its last saved state, and turns that
    /// were interleaved with the one that panicked get this too.
    #[error("the actor panicked while it ran the call")]
    Panicked,
    /// The call would have waited for itself: the chain of calls it belongs to is already inside this actor.
    #[error("the chain of calls came back to an actor that waits for it")]
    CallCycle,
    /// The call was given up by its caller, or its actor's node is shutting down. It may have run.
    #[error("the call was cancelled")]
    Cancelled,
    /// No reply came in time. The call may have run or may still run.
    #[error("no reply came before the deadline")]
    DeadlineExceeded,
    /// The call makes no sense to its receiver. It did not run, and never would; unless it is the reply that can't be given,
    /// which the reason says.
    #[error("the call was rejected: {0}")]
    Rejected(Rejected),
}

/// Why a call was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotDelivered {
    /// The node that hosts the actor could not be reached, and the call had not left.
    #[error("its node can't be reached")]
    Unreachable,
    /// The actor was no longer where the call went.
    #[error("the actor is not on that node")]
    NotHere,
    /// No server could take the actor.
    #[error("no server could take the actor")]
    NoPlace,
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The actor's saved state could not be read, so it could not be activated.
    #[error("the actor's state could not be loaded")]
    StateUnavailable,
}

/// Why it is not known whether a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unknown {
    /// The node that had the call died or was cut off.
    #[error("the node that had it was lost")]
    NodeLost,
    /// The call ran, but its effect could not be saved, so the actor was reset to what was saved before.
    #[error("its effect could not be saved")]
    NotSaved,
}

/// Who has too much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Overloaded {
    /// The actor: its mailbox is full.
    #[error("the actor's mailbox is full")]
    Actor,
    /// The tenant has used up what it may.
    #[error("the tenant has used up its budget")]
    Tenant,
    /// The node as a whole.
    #[error("the node is overloaded")]
    Node,
}

/// Why a call makes no sense to its receiver.
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
    /// Arguments or reply could not be decoded as what the function takes.
    #[error("{what} of `{method}` can't be decoded: {why}")]
    Undecodable {
        /// "the arguments" or "the reply".
        what: String,
        /// The function.
        method: String,
        /// What the decoder said.
        why: String,
    },
    /// The message, with the values that flow along, is longer than what may travel between nodes; or the reply is, and then
    /// the call has run.
    #[error("a message or reply of {bytes} bytes is larger than the {max} bytes allowed")]
    TooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// The key is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    #[error("an actor key of {bytes} bytes is too long")]
    KeyTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A reference that came out of a message or a file was used outside any turn, where nothing says which process its
    /// calls go through. Bind it to a client first.
    #[error("a decoded reference to a `{0}` is used outside any turn: bind it with `Client::bind` first")]
    Unbound(String),
}

impl CallError {
    /// Whether the call certainly did not run, so that trying again can't do anything twice.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, CallError::NotDelivered(_) | CallError::Overloaded(_))
    }
}
