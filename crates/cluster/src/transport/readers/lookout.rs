//! Who leads on while the thread that reads connections runs an actor.
//!
//! That thread runs errands itself, which saves a wake-up. But a handler may run for long, and nobody must wait for it who only
//! shares the thread, or the connection. So the leader lays the lead down here before it runs a task, and the task puts its
//! connection down before it begins an errand; the other thread looks in from time to time, and takes both if they have been
//! lying here for too long.
//!
//! One errand at a time is run like this, so that one of the two threads is always free to lead.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Lead;
use crate::transport::reading::Reading;

/// How often it looks in. An errand that takes a whole period has taken too long.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// After so many looks at nothing new it looks only when an errand begins again: a quiet process has nobody awake.
const IDLE_LOOKS_MAX: u32 = 50;

/// Where the lead and connections are laid down.
#[derive(Default)]
pub(super) struct Lookout {
    state: Mutex<State>,
    errand_began: Condvar,
}

#[derive(Default)]
struct State {
    /// The lead, while its owner runs a task.
    lead: Option<Lead>,
    /// The connection whose reader is on an errand.
    connection: Option<Reading>,
    /// Counts errands.
    errands: u64,
    /// An errand goes on whose thread has lost the lead.
    held_up: bool,
    /// There is somebody who looks out.
    two_threads: bool,
    /// Who looks out waits until it is told.
    asleep: bool,
}

/// Whoever has this has put a connection down and may take it back.
#[must_use]
pub(crate) struct Ticket(u64);

impl Lookout {
    /// From now on somebody looks out.
    pub(super) fn has_two_threads(&self) {
        self.state.lock().two_threads = true;
    }

    /// Lays the lead down while its owner runs a task.
    pub(super) fn lay(&self, lead: Lead) {
        self.state.lock().lead = Some(lead);
    }

    /// Takes the lead up again, unless somebody else has.
    pub(super) fn pick_up(&self) -> Option<Lead> {
        self.state.lock().lead.take()
    }

    /// Puts a connection down; gives it back if nobody could take it over.
    pub(super) fn put_down(&self, connection: Reading) -> Result<Ticket, Reading> {
        let mut state = self.state.lock();
        if !state.two_threads || state.held_up {
            return Err(connection);
        }
        state.errands += 1;
        state.connection = Some(connection);
        if std::mem::take(&mut state.asleep) {
            self.errand_began.notify_one();
        }
        Ok(Ticket(state.errands))
    }

    /// Takes a connection back, unless another task reads it meanwhile.
    pub(super) fn take_back(&self, ticket: Ticket) -> Option<Reading> {
        let mut state = self.state.lock();
        assert_eq!(state.errands, ticket.0, "one is put down at a time");
        state.held_up = false;
        state.connection.take()
    }

    /// Looks out until who leads is held up. Gives the lead, and the connection that somebody has to go on reading.
    pub(super) fn wait_for_lead(&self) -> (Lead, Reading) {
        let mut state = self.state.lock();
        let (mut seen, mut idle_looks) = (None, 0);
        loop {
            let is_as_before = seen == Some(state.errands);
            if is_as_before && let Some(connection) = state.connection.take() {
                state.held_up = true;
                let lead = state.lead.take().expect("it is laid down before a task is run");
                return (lead, connection);
            }
            idle_looks = if is_as_before { idle_looks + 1 } else { 0 };
            seen = Some(state.errands);
            if idle_looks < IDLE_LOOKS_MAX {
                self.errand_began.wait_for(&mut state, LOOK_EVERY);
                continue;
            }
            state.asleep = true;
            self.errand_began.wait(&mut state);
            state.asleep = false;
        }
    }
}
