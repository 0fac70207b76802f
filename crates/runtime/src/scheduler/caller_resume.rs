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

/// The caller that resumes a suspended turn.
#[derive(Debug)]
pub(crate) struct CallerResume {
    pub(crate) ticket: Ticket,
    /// Wakes the caller; `None` once it was woken and is about to resume.
    pub(crate) waker: Option<Waker>,
    waits_left: u32,
    /// Whether the watchdog has seen that the caller was woken and has not resumed.
    pub(crate) overdue: bool,
}

impl CallerResume {
    pub(crate) fn new(ticket: Ticket, waker: &Waker) -> Self {
        Self {
            ticket,
            waker: Some(waker.clone()),
            waits_left: CALLER_RESUMES_MAX,
            overdue: false,
        }
    }

    /// The caller after another suspension, if it polled the turn itself and still resumes it.
    pub(crate) fn again(mut self, polled_by: Option<&Waker>) -> Option<Self> {
        self.waits_left = self.waits_left.checked_sub(1)?;
        self.overdue = false;
        self.waker = Some(polled_by?.clone());
        Some(self)
    }

    /// Replaces the caller's waker; returns the previous one.
    #[must_use = "it is dropped outside of locks: a waker's drop may run any code"]
    pub(crate) fn set_waker(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => self.waker.replace(waker.clone()),
        }
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
