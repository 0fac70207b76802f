//! Turns that their callers go on with.
//!
//! A call runs on its caller's thread. If its handler waits for something, its caller waits as well. When the turn is woken,
//! its caller is, and polls the turn within its own poll: as if the handler were one of the caller's own functions. A worker
//! in between would have to be woken itself and would have to wake the caller, which costs many times what short turns take.
//!
//! A turn does not depend on its caller for that. Workers go on with it when the caller goes away, when it has waited often, or
//! when the caller was woken and does not come: the watch sees to that. Turns that compute for long are the workers' from
//! the beginning, because a caller that has begun several of them would run one after another.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use elastin_actor::Ticket;
use elastin_clock::Clock;
use parking_lot::Mutex;

use crate::timers::{Due, Timers};

/// How often a turn waits before workers go on with it: one that waits more often lasts so long that a wake-up does not count
/// any more.
const WAITS_MAX: u32 = 16;

/// How long a caller that was woken is waited for at least, and half as long again on average.
const PATIENCE: Duration = Duration::from_millis(10);

/// Who goes on with a turn that waits for something.
#[derive(Debug)]
pub(crate) enum ResumeBy {
    /// Whoever of the workers has time.
    Workers,
    /// Who has called.
    Caller(CallerResume),
}

/// What is known of a caller that goes on with its turn.
#[derive(Debug)]
pub(crate) struct CallerResume {
    ticket: Ticket,
    /// Wakes the caller; `None` once it was woken.
    waker: Option<Waker>,
    waits_left: u32,
    /// The watch has seen that it was woken and does not go on.
    overdue: bool,
}

impl ResumeBy {
    /// The caller with this ticket goes on. Without a waker, somebody else is about to wake it.
    pub(crate) fn caller(ticket: Ticket, waker: Option<&Waker>) -> Self {
        Self::Caller(CallerResume {
            ticket,
            waker: waker.cloned(),
            waits_left: WAITS_MAX,
            overdue: false,
        })
    }

    /// The same for when the turn waits once more, after its caller has polled it, or without one a worker.
    pub(crate) fn next(mut self, polled_by: Option<&Waker>) -> Self {
        if let (Self::Caller(caller_resume), Some(waker)) = (&mut self, polled_by)
            && caller_resume.waits_left > 0
        {
            caller_resume.waits_left -= 1;
            caller_resume.overdue = false;
            caller_resume.waker = Some(waker.clone());
            return self;
        }
        Self::Workers
    }

    /// The caller with this ticket, if the turn is caller resume to it.
    pub(crate) fn resumed_by(&mut self, ticket: Ticket) -> Option<&mut CallerResume> {
        match self {
            Self::Caller(caller_resume) if caller_resume.ticket == ticket => Some(caller_resume),
            Self::Caller(_) | Self::Workers => None,
        }
    }
}

impl CallerResume {
    /// Whom to wake; nobody, if that has happened.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Whether the caller was woken, and is about to go on.
    pub(crate) fn is_woken(&self) -> bool {
        self.waker.is_none()
    }

    /// From now on the caller is woken by this. Gives what did so before.
    #[must_use = "it is dropped outside of locks: a waker's drop may run any code"]
    pub(crate) fn set_waker(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => self.waker.replace(waker.clone()),
        }
    }

    /// The watch looks at a turn that was woken; says whether it has done so before.
    pub(crate) fn note_overdue(&mut self) -> bool {
        std::mem::replace(&mut self.overdue, true)
    }
}

impl Drop for CallerResume {
    /// The turn goes on in another way, or not at all: the caller looks for its reply.
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// An actor whose turns are caller resume to callers.
pub(crate) trait ResumesTurns: Send + Sync {
    /// Hands a turn over to the workers whose caller was woken and does not come. Says whether to look again.
    fn check_caller_resumes(&self) -> bool;
}

/// Looks after callers that were woken to go on with their turns.
pub(crate) struct ResumeWatchdog {
    clock: Clock,
    timers: Arc<Timers>,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    actors: Vec<Weak<dyn ResumesTurns>>,
    /// The next look is due at a time.
    is_due: bool,
}

impl ResumeWatchdog {
    pub(crate) fn new(clock: Clock, timers: Arc<Timers>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            timers,
            watched: Mutex::default(),
        })
    }

    /// Looks after an actor, until a look finds that it needs none.
    pub(crate) fn add(self: &Arc<Self>, actor: Weak<dyn ResumesTurns>) {
        let mut watched = self.watched.lock();
        watched.actors.push(actor);
        if !std::mem::replace(&mut watched.is_due, true) {
            drop(watched);
            self.look_later();
        }
    }

    fn look_later(self: &Arc<Self>) {
        let watch = Arc::downgrade(self);
        let look = move || {
            if let Some(watch) = watch.upgrade() {
                watch.look();
            }
        };
        self.timers.at(self.clock.now() + PATIENCE, Due::Run(Box::new(look)));
    }

    fn look(self: &Arc<Self>) {
        let mut actors = std::mem::take(&mut self.watched.lock().actors);
        actors.retain(|actor| actor.upgrade().is_some_and(|actor| actor.check_caller_resumes()));
        let mut watched = self.watched.lock();
        watched.actors.append(&mut actors);
        watched.is_due = !watched.actors.is_empty();
        if watched.is_due {
            drop(watched);
            self.look_later();
        }
    }
}
