//! Where the reply of a call that could not be answered at once goes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use elastin_types::{CallError, CallId, Message, NotDelivered, Outcome, Rejected};

use serde::de::DeserializeOwned;

use crate::Actor;
use crate::codec;
use crate::function::Function;
use crate::host::{Host, Ticket};

/// The meeting place of one caller and the turn that answers it, in the reply's own type.
pub(crate) struct ReplyCell<R> {
    state: Mutex<State<R>>,
}

enum State<R> {
    Waiting {
        waker: Option<Waker>,
        /// As what the call has left this process's actors, if it has.
        left: Option<CallId>,
    },
    Answered(Result<R, CallError>),
    /// The caller took the answer or went away.
    Closed,
}

impl<R> ReplyCell<R> {
    /// A slot without an answer, whose caller is woken when there is one.
    pub(crate) fn new(caller: Option<&Waker>) -> Arc<Self> {
        Arc::new(Self::waiting(caller))
    }

    fn waiting(caller: Option<&Waker>) -> Self {
        Self {
            state: Mutex::new(State::Waiting {
                waker: caller.cloned(),
                left: None,
            }),
        }
    }

    /// The same out of a slot that another call is done with, if nobody else has that.
    pub(crate) fn again(mut slot: Arc<Self>, caller: Option<&Waker>) -> Arc<Self> {
        match Arc::get_mut(&mut slot) {
            Some(own) => *own = Self::waiting(caller),
            None => slot = Self::new(caller),
        }
        slot
    }

    /// Names the caller that waits at this slot.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        Ticket(Arc::as_ptr(self).addr())
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        // Nothing that can panic runs under this lock, so what it guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers. The first answer counts; a later one is dropped, as is one that nobody waits for.
    pub(crate) fn put(&self, answer: Result<R, CallError>) {
        if let Some(waker) = self.fill(answer) {
            waker.wake();
        }
    }

    /// The same, and leaves it to whoever calls this to wake the caller.
    #[must_use]
    fn fill(&self, answer: Result<R, CallError>) -> Option<Waker> {
        let mut state = self.lock();
        match &mut *state {
            State::Waiting { waker, .. } => {
                let waker = waker.take();
                *state = State::Answered(answer);
                waker
            }
            State::Answered(_) | State::Closed => None,
        }
    }

    /// Takes the answer, or asks to be woken when there is one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<R, CallError>> {
        let mut state = self.lock();
        match &mut *state {
            State::Waiting { waker: Some(known), .. } if known.will_wake(waker) => Poll::Pending,
            State::Waiting { waker: known, .. } => {
                *known = Some(waker.clone());
                Poll::Pending
            }
            State::Answered(_) => match std::mem::replace(&mut *state, State::Closed) {
                State::Answered(answer) => Poll::Ready(answer),
                State::Waiting { .. } | State::Closed => unreachable!("the slot was just seen to be answered"),
            },
            State::Closed => Poll::Ready(Err(CallError::Cancelled)),
        }
    }

    /// The call leaves this process's actors under this id.
    fn leaves_as(&self, call: CallId) {
        if let State::Waiting { left, .. } = &mut *self.lock() {
            *left = Some(call);
        }
    }

    /// Whether there is no answer, and only actors of this process can give one.
    pub(crate) fn waits_for_own(&self) -> bool {
        matches!(&*self.lock(), State::Waiting { left: None, .. })
    }

    /// The caller does not wait any longer. Gives the id under which the call has left, if nobody has answered it yet.
    pub(crate) fn close(&self) -> Option<CallId> {
        // What was there is dropped outside the lock: the answer's own drop may run any code.
        let before = std::mem::replace(&mut *self.lock(), State::Closed);
        match before {
            State::Waiting { left, .. } => left,
            State::Answered(_) | State::Closed => None,
        }
    }
}

/// Takes the encoded outcome of a call that left the process's own actors, exactly once.
///
/// If it is dropped without an outcome, its caller gets [`CallError::Cancelled`].
pub struct ReplySender {
    taker: Option<Taker>,
    again: Option<Again>,
}

/// Who is told first if the call was not delivered, and what it then may send again.
struct Again {
    by: Weak<dyn RetryHook>,
    message: Arc<Message>,
}

/// Makes calls again that certainly have not run.
pub trait RetryHook: Send + Sync {
    /// A call was not delivered. Its caller still waits at `reply`.
    fn not_delivered(self: Arc<Self>, message: Arc<Message>, reply: ReplySender, why: NotDelivered);
}

enum Taker {
    Closure(Box<dyn FnOnce(Outcome) + Send>),
    /// A caller, and how it calls what it has called.
    Caller(Arc<dyn Decodes>, &'static Names),
}

/// A meeting place that takes an encoded outcome.
trait Decodes: Send + Sync {
    /// Gives whom to wake.
    #[must_use]
    fn decode(&self, outcome: Outcome, names: &'static Names) -> Option<Waker>;
}

/// The names that errors give an actor type and its function.
struct Names {
    kind: &'static str,
    method: &'static str,
}

impl<R: DeserializeOwned + Send> Decodes for ReplyCell<R> {
    fn decode(&self, outcome: Outcome, names: &'static Names) -> Option<Waker> {
        self.fill(match outcome {
            Ok(bytes) => codec::decode(&bytes, "the reply", names.method).map_err(CallError::Rejected),
            Err(error) => Err(names.put_into(error)),
        })
    }
}

impl ReplySender {
    /// A slot that hands the outcome to `complete`.
    pub fn new(complete: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self {
            taker: Some(Taker::Closure(Box::new(complete))),
            again: None,
        }
    }

    /// If the call turns out not to have been delivered, `by` hears of it instead of the caller, once.
    pub fn made_again(mut self, by: Weak<dyn RetryHook>, message: Arc<Message>) -> Self {
        self.again = Some(Again { by, message });
        self
    }

    /// Hands over the outcome.
    pub fn complete(self, outcome: Outcome) {
        if let Some(waker) = self.fill(outcome) {
            waker.wake();
        }
    }

    /// The same, and leaves it to whoever calls this to wake the caller, if that is to be done.
    #[must_use]
    pub fn fill(mut self, outcome: Outcome) -> Option<Waker> {
        let again = self.again.take();
        if let Err(CallError::NotDelivered(why)) = outcome
            && let Some(Again { by, message }) = again
            && let Some(by) = by.upgrade()
        {
            by.not_delivered(message, self, why);
            return None;
        }
        self.hand_over(outcome)
    }

    fn hand_over(&mut self, outcome: Outcome) -> Option<Waker> {
        match self.taker.take()? {
            Taker::Closure(complete) => {
                complete(outcome);
                None
            }
            Taker::Caller(slot, names) => slot.decode(outcome, names),
        }
    }

    /// A slot that decodes the reply of a call, which leaves under this id, for the caller that waits at `slot`.
    pub(crate) fn decoding<F: Function>(slot: Arc<ReplyCell<F::Reply>>, call: CallId) -> Self {
        slot.leaves_as(call);
        let names = const {
            &Names {
                kind: <F::Actor as Actor>::NAME,
                method: F::NAME,
            }
        };
        Self {
            taker: Some(Taker::Caller(slot, names)),
            again: None,
        }
    }
}

impl Names {
    /// Puts the names that the caller knows into an error of a node that has only their ids.
    fn put_into(&self, error: CallError) -> CallError {
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
        if let Some(waker) = self.hand_over(Err(CallError::Cancelled)) {
            waker.wake();
        }
    }
}

impl fmt::Debug for ReplySender {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReplySender").finish_non_exhaustive()
    }
}

/// Where the reply of a call that came encoded goes: back through the host by the call's id, or to a slot that came along.
///
/// If it is dropped without an outcome, the caller gets [`CallError::Cancelled`].
#[derive(Debug)]
pub struct ReplyTo {
    way: Option<Way>,
}

enum Way {
    Host(Arc<dyn Host>, CallId),
    ReplyCell(ReplySender),
}

impl ReplyTo {
    /// The reply of `call` leaves through `host`.
    pub fn host(host: Arc<dyn Host>, call: CallId) -> Self {
        Self {
            way: Some(Way::Host(host, call)),
        }
    }

    /// The reply goes to a slot.
    pub fn slot(slot: ReplySender) -> Self {
        Self {
            way: Some(Way::ReplyCell(slot)),
        }
    }

    /// Hands over the outcome.
    pub fn complete(mut self, outcome: Outcome) {
        self.take_outcome(outcome);
    }

    /// The call goes on elsewhere: no reply will leave from here, and the slot goes along if there is one.
    pub fn pass_on(mut self) -> Option<ReplySender> {
        match self.way.take() {
            Some(Way::ReplyCell(slot)) => Some(slot),
            Some(Way::Host(..)) | None => None,
        }
    }

    fn take_outcome(&mut self, outcome: Outcome) {
        match self.way.take() {
            Some(Way::Host(host, call)) => host.reply(call, outcome),
            Some(Way::ReplyCell(slot)) => slot.complete(outcome),
            None => {}
        }
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        self.take_outcome(Err(CallError::Cancelled));
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Host(_, call) => out.debug_tuple("Host").field(call).finish(),
            Way::ReplyCell(slot) => slot.fmt(out),
        }
    }
}
