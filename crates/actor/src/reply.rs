//! Delivery of replies that are not available immediately.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use elastin_types::{CallError, CallId, Message, NotDelivered, Outcome, Rejected};

use serde::de::DeserializeOwned;

use crate::Actor;
use crate::codec;
use crate::function::Function;
use crate::host::{Host, Ticket};

/// Rendezvous of one caller and the turn that replies, in the reply's own type.
pub(crate) struct ReplyCell<R> {
    state: Mutex<State<R>>,
}

enum State<R> {
    Waiting {
        waker: Option<Waker>,
        /// The id of the call, if it was sent out of this process.
        sent_as: Option<CallId>,
    },
    Completed(Result<R, CallError>),
    /// The caller took the outcome or is gone.
    Closed,
}

impl<R> ReplyCell<R> {
    /// An empty cell. `caller` is woken by the reply.
    pub(crate) fn new(caller: Option<&Waker>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::Waiting {
                waker: caller.cloned(),
                sent_as: None,
            }),
        })
    }

    /// Identifies the caller that waits on this cell.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        Ticket(Arc::as_ptr(self).addr())
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        // Nothing that can panic runs under this lock, so poisoning is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the call and wakes the caller. Only the first outcome counts; it is dropped if the caller is gone.
    pub(crate) fn complete(&self, outcome: Result<R, CallError>) {
        if let Some(waker) = self.fill(outcome) {
            waker.wake();
        }
    }

    /// Like [`complete`](ReplyCell::complete), but returns the caller's waker instead of waking it.
    #[must_use]
    fn fill(&self, outcome: Result<R, CallError>) -> Option<Waker> {
        let mut state = self.lock();
        match &mut *state {
            State::Waiting { waker, .. } => {
                let waker = waker.take();
                *state = State::Completed(outcome);
                waker
            }
            State::Completed(_) | State::Closed => None,
        }
    }

    /// Takes the outcome, or registers the waker.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<R, CallError>> {
        let mut state = self.lock();
        match &mut *state {
            State::Waiting { waker: Some(known), .. } if known.will_wake(waker) => Poll::Pending,
            State::Waiting { waker: known, .. } => {
                *known = Some(waker.clone());
                Poll::Pending
            }
            State::Completed(_) => match std::mem::replace(&mut *state, State::Closed) {
                State::Completed(outcome) => Poll::Ready(outcome),
                State::Waiting { .. } | State::Closed => unreachable!("the state was just matched as completed"),
            },
            State::Closed => Poll::Ready(Err(CallError::Cancelled)),
        }
    }

    /// Records that the call is sent out of this process under this id.
    fn mark_sent(&self, call: CallId) {
        if let State::Waiting { sent_as, .. } = &mut *self.lock() {
            *sent_as = Some(call);
        }
    }

    /// Whether the call is pending and was not sent out of this process.
    pub(crate) fn awaits_local(&self) -> bool {
        matches!(&*self.lock(), State::Waiting { sent_as: None, .. })
    }

    /// Closes the cell: the caller stops waiting. Returns the id of a pending call that was sent out of this process.
    pub(crate) fn close(&self) -> Option<CallId> {
        // The old state is dropped outside the lock, because the reply's drop may run arbitrary code.
        let before = std::mem::replace(&mut *self.lock(), State::Closed);
        match before {
            State::Waiting { sent_as, .. } => sent_as,
            State::Completed(_) | State::Closed => None,
        }
    }
}

/// Accepts the encoded outcome of a call that left or entered this process, exactly once.
///
/// If it is dropped without an outcome, its caller gets [`CallError::Cancelled`].
pub struct ReplySender {
    receiver: Option<Receiver>,
    retry: Option<Retry>,
}

/// The hook that may resend a call that was not delivered.
struct Retry {
    hook: Weak<dyn RetryHook>,
    message: Arc<Message>,
}

/// Retries calls that certainly have not run.
pub trait RetryHook: Send + Sync {
    /// Called when a call was not delivered. Its caller still waits for `reply`.
    fn not_delivered(self: Arc<Self>, message: Arc<Message>, reply: ReplySender, why: NotDelivered);
}

enum Receiver {
    Callback(Box<dyn FnOnce(Outcome) + Send>),
    /// The caller's reply cell, and the names for its errors.
    Caller(Arc<dyn DecodeReply>, &'static Names),
    /// The host, which sends the outcome of the call with this id to another process.
    Host(Arc<dyn Host>, CallId),
}

/// A reply cell that accepts an encoded outcome.
trait DecodeReply: Send + Sync {
    /// Completes the call. Returns the caller's waker.
    #[must_use]
    fn decode(&self, outcome: Outcome, names: &'static Names) -> Option<Waker>;
}

/// The names of an actor type and its function, for error messages.
struct Names {
    kind: &'static str,
    method: &'static str,
}

impl<R: DeserializeOwned + Send> DecodeReply for ReplyCell<R> {
    fn decode(&self, outcome: Outcome, names: &'static Names) -> Option<Waker> {
        self.fill(match outcome {
            Ok(bytes) => codec::decode(&bytes, "the reply", names.method).map_err(CallError::Rejected),
            Err(error) => Err(names.fill_in(error)),
        })
    }
}

impl ReplySender {
    /// A sender that passes the outcome to `complete`.
    pub fn new(complete: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self::to(Receiver::Callback(Box::new(complete)))
    }

    /// If the call was not delivered, `hook` is called instead of failing the call, once.
    pub fn made_again(mut self, hook: Weak<dyn RetryHook>, message: Arc<Message>) -> Self {
        self.retry = Some(Retry { hook, message });
        self
    }

    /// Completes the call and wakes the caller.
    pub fn complete(self, outcome: Outcome) {
        if let Some(waker) = self.fill(outcome) {
            waker.wake();
        }
    }

    /// Like [`complete`](ReplySender::complete), but returns the caller's waker, if any, instead of waking it.
    #[must_use]
    pub fn fill(mut self, outcome: Outcome) -> Option<Waker> {
        let retry = self.retry.take();
        if let Err(CallError::NotDelivered(why)) = outcome
            && let Some(Retry { hook, message }) = retry
            && let Some(hook) = hook.upgrade()
        {
            hook.not_delivered(message, self, why);
            return None;
        }
        self.deliver(outcome)
    }

    fn deliver(&mut self, outcome: Outcome) -> Option<Waker> {
        match self.receiver.take()? {
            Receiver::Callback(complete) => {
                complete(outcome);
                None
            }
            Receiver::Caller(reply_cell, names) => reply_cell.decode(outcome, names),
            Receiver::Host(host, call) => {
                host.reply(call, outcome);
                None
            }
        }
    }

    /// Sends the outcome of a call from another process through `host`.
    pub fn host(host: Arc<dyn Host>, call: CallId) -> Self {
        Self::to(Receiver::Host(host, call))
    }

    /// Forwards the call: no outcome is sent from here. Returns the sender unless the header of the forwarded message
    /// identifies the destination.
    pub(crate) fn pass_on(mut self) -> Option<Self> {
        match self.receiver {
            Some(Receiver::Host(..)) => {
                self.receiver = None;
                None
            }
            _ => Some(self),
        }
    }

    fn to(receiver: Receiver) -> Self {
        Self {
            receiver: Some(receiver),
            retry: None,
        }
    }

    /// A sender that decodes the reply of the call with this id for the caller that waits on `reply_cell`.
    pub(crate) fn decoding<F: Function>(reply_cell: Arc<ReplyCell<F::Reply>>, call: CallId) -> Self {
        reply_cell.mark_sent(call);
        let names = const {
            &Names {
                kind: <F::Actor as Actor>::NAME,
                method: F::NAME,
            }
        };
        Self::to(Receiver::Caller(reply_cell, names))
    }
}

impl Names {
    /// Replaces ids in an error from another node by the names that the caller knows.
    fn fill_in(&self, error: CallError) -> CallError {
        let kind = self.kind.to_owned();
        match error {
            CallError::Rejected(Rejected::UnknownType(_)) => CallError::Rejected(Rejected::UnknownType(kind)),
            CallError::Rejected(Rejected::UnknownMethod { .. }) => CallError::Rejected(Rejected::UnknownMethod {
                kind,
                method: self.method.to_owned(),
            }),
            other => other,
        }
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if let Some(waker) = self.deliver(Err(CallError::Cancelled)) {
            waker.wake();
        }
    }
}

impl fmt::Debug for ReplySender {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReplySender").finish_non_exhaustive()
    }
}
