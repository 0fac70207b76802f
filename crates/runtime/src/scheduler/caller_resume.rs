//! Suspended turns that their callers resume.
//!
//! A call runs on its caller's thread. If its handler suspends, the caller suspends as well. A wake of the turn wakes
//! the caller, which polls the turn within its own poll, as if the handler were one of its own functions. A worker in
//! between would have to be woken and then wake the caller, which costs far more than a short turn.
//!
//! A turn does not depend on its caller for progress. Workers take over when the caller is dropped, when the turn has
//! suspended often, or when the woken caller does not poll: [`ResumeWatchdog`] detects that. Turns that compute for
//! long belong to the workers from the start, because a caller with several of them would run them one after another.

use std::sync::{Arc, Weak};
use std::task::Waker;

use elastin_actor::Ticket;
use elastin_clock::Clock;
use parking_lot::Mutex;

use crate::timers::{Due, Timers};
use crate::tuning::{CALLER_RESUMES_MAX, RESUME_TIMEOUT};

/// The thread that resumes a suspended turn.
#[derive(Debug)]
pub(crate) enum ResumeBy {
    /// Any worker.
    Workers,
    /// The caller.
    Caller(CallerResume),
}

/// A caller that resumes its turn.
#[derive(Debug)]
pub(crate) struct CallerResume {
    ticket: Ticket,
    /// Wakes the caller; `None` once it was woken.
    waker: Option<Waker>,
    waits_left: u32,
    /// Whether the watchdog has seen that the caller was woken and has not resumed.
    overdue: bool,
}

impl ResumeBy {
    /// The caller with this ticket resumes the turn.
    pub(crate) fn caller(ticket: Ticket, waker: &Waker) -> Self {
        Self::Caller(CallerResume {
            ticket,
            waker: Some(waker.clone()),
            waits_left: CALLER_RESUMES_MAX,
            overdue: false,
        })
    }

    /// The resumer after another suspension: still the caller if it polled the turn (`polled_by`), else the workers.
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

    pub(crate) fn is_caller(&self) -> bool {
        matches!(self, Self::Caller(_))
    }

    /// The caller with this ticket, if it resumes the turn.
    pub(crate) fn resumed_by(&mut self, ticket: Ticket) -> Option<&mut CallerResume> {
        match self {
            Self::Caller(caller_resume) if caller_resume.ticket == ticket => Some(caller_resume),
            Self::Caller(_) | Self::Workers => None,
        }
    }
}

impl CallerResume {
    /// Takes the caller's waker; `None` if the caller was woken already.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Whether the caller was woken and is about to resume.
    pub(crate) fn is_woken(&self) -> bool {
        self.waker.is_none()
    }

    /// Replaces the caller's waker; returns the previous one.
    #[must_use = "it is dropped outside of locks: a waker's drop may run any code"]
    pub(crate) fn set_waker(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => self.waker.replace(waker.clone()),
        }
    }

    /// Marks a woken turn as overdue; returns whether it was marked before.
    pub(crate) fn note_overdue(&mut self) -> bool {
        std::mem::replace(&mut self.overdue, true)
    }
}

impl Drop for CallerResume {
    /// The turn is resumed elsewhere, or never: the caller must check for its reply.
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A cell whose turns are resumed by callers.
pub(crate) trait ResumesTurns: Send + Sync {
    /// Hands a turn over to the workers if its caller was woken and does not resume it. Returns whether to check again.
    fn check_caller_resumes(&self) -> bool;
}

/// Watches callers that were woken to resume their turns.
pub(crate) struct ResumeWatchdog {
    clock: Clock,
    timers: Arc<Timers>,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    actors: Vec<Weak<dyn ResumesTurns>>,
    /// Whether the next check is scheduled.
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

    /// Watches a cell until a check finds that it no longer needs watching.
    pub(crate) fn add(self: &Arc<Self>, actor: Weak<dyn ResumesTurns>) {
        let mut watched = self.watched.lock();
        watched.actors.push(actor);
        if !std::mem::replace(&mut watched.is_due, true) {
            drop(watched);
            self.check_later();
        }
    }

    fn check_later(self: &Arc<Self>) {
        let watchdog = Arc::downgrade(self);
        let check = move || {
            if let Some(watchdog) = watchdog.upgrade() {
                watchdog.check();
            }
        };
        self.timers
            .at(self.clock.now() + RESUME_TIMEOUT, Due::Run(Box::new(check)));
    }

    fn check(self: &Arc<Self>) {
        let mut actors = std::mem::take(&mut self.watched.lock().actors);
        actors.retain(|actor| actor.upgrade().is_some_and(|actor| actor.check_caller_resumes()));
        let mut watched = self.watched.lock();
        watched.actors.append(&mut actors);
        watched.is_due = !watched.actors.is_empty();
        if watched.is_due {
            drop(watched);
            self.check_later();
        }
    }
}
