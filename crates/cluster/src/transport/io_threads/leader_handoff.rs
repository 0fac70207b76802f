//! Who leads on while the thread that reads connections runs an actor.
//!
//! That thread runs errands itself, which saves a wake-up. But a handler may run for long, and nobody must wait for it who only
//! shares the thread, or the connection. So the leader lays the lead down here before it runs a task, and the task puts its
//! connection down before it begins an inline task; the other thread looks in from time to time, and takes both if they have been
//! lying here for too long.
//!
//! One inline task at a time is run like this, so that one of the two threads is always free to lead. A thread that has lost the lead
//! looks out once it is through with its inline task, whoever leads then and whatever it is at.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often it looks in. An inline task that takes a whole period has taken too long.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// After so many looks at nothing new it looks only when an inline task begins again: a quiet process has nobody awake.
const IDLE_CHECKS_MAX: u32 = 50;

/// Where the lead and connections are leader token down.
pub(super) struct LeaderHandoff<Poller, Connection> {
    state: Mutex<State<Poller, Connection>>,
    errand_began: Condvar,
}

struct State<Poller, Connection> {
    /// The lead, while its owner runs a task.
    lead: Option<Poller>,
    /// Counts how often the lead went to the other thread.
    changes: u64,
    /// The connection whose reader is on an inline task.
    connection: Option<Connection>,
    /// Counts errands.
    errands: u64,
    /// An inline task goes on whose thread has lost the lead.
    held_up: bool,
    /// There is somebody who looks out.
    two_threads: bool,
    /// Who looks out waits until it is told.
    asleep: bool,
}

/// Whoever has this has leader token the lead down and may pick it up, if nobody else has taken it.
#[must_use]
pub(super) struct LeaderToken(u64);

/// Whoever has this has put a connection down and may take it back.
#[must_use]
pub(crate) struct Ticket(u64);

impl<Poller, Connection> Default for LeaderHandoff<Poller, Connection> {
    fn default() -> Self {
        let state = State {
            lead: None,
            changes: 0,
            connection: None,
            errands: 0,
            held_up: false,
            two_threads: false,
            asleep: false,
        };
        Self {
            state: Mutex::new(state),
            errand_began: Condvar::new(),
        }
    }
}

impl<Poller, Connection> LeaderHandoff<Poller, Connection> {
    /// From now on somebody looks out.
    pub(super) fn has_two_threads(&self) {
        self.state.lock().two_threads = true;
    }

    /// Lays the lead down while its owner runs a task.
    pub(super) fn lay(&self, lead: Poller) -> LeaderToken {
        let mut state = self.state.lock();
        state.lead = Some(lead);
        LeaderToken(state.changes)
    }

    /// Takes the lead up again. None, if the other thread has it since: what lies here then is that one's.
    pub(super) fn pick_up(&self, leader_token: LeaderToken) -> Option<Poller> {
        let mut state = self.state.lock();
        match state.changes == leader_token.0 {
            true => state.lead.take(),
            false => None,
        }
    }

    /// Puts a connection down; gives it back if nobody could take it over.
    pub(super) fn put_down(&self, connection: Connection) -> Result<Ticket, Connection> {
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
    pub(super) fn take_back(&self, ticket: Ticket) -> Option<Connection> {
        let mut state = self.state.lock();
        assert_eq!(state.errands, ticket.0, "one is put down at a time");
        state.held_up = false;
        state.connection.take()
    }

    /// Looks out until who leads is held up. Gives the lead, and the connection that somebody has to go on reading.
    pub(super) fn wait_for_lead(&self) -> (Poller, Connection) {
        let mut state = self.state.lock();
        let (mut seen, mut idle_looks) = (None, 0);
        loop {
            let is_as_before = seen == Some(state.errands);
            if is_as_before && let Some(connection) = state.connection.take() {
                state.held_up = true;
                state.changes += 1;
                let lead = state.lead.take().expect("it is leader_token down before a task is run");
                return (lead, connection);
            }
            idle_looks = if is_as_before { idle_looks + 1 } else { 0 };
            seen = Some(state.errands);
            if idle_looks < IDLE_CHECKS_MAX {
                self.errand_began.wait_for(&mut state, CHECK_EVERY);
                continue;
            }
            state.asleep = true;
            self.errand_began.wait(&mut state);
            state.asleep = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lead and a connection, each with a number.
    fn leader_handoff() -> LeaderHandoff<u32, u32> {
        let leader_handoff = LeaderHandoff::default();
        leader_handoff.has_two_threads();
        leader_handoff
    }

    #[test]
    fn who_leads_goes_on_after_a_short_errand() {
        let leader_handoff = leader_handoff();
        let leader_token = leader_handoff.lay(1);
        let ticket = leader_handoff.put_down(10).unwrap();
        assert_eq!(leader_handoff.take_back(ticket), Some(10));
        assert_eq!(leader_handoff.pick_up(leader_token), Some(1));
    }

    #[test]
    fn nobody_else_runs_errands_while_one_takes_long() {
        let leader_handoff = leader_handoff();
        let first = leader_handoff.lay(1);
        let ticket = leader_handoff.put_down(10).unwrap();
        assert_eq!(leader_handoff.wait_for_lead(), (1, 10));
        let second = leader_handoff.lay(1);
        assert_eq!(leader_handoff.put_down(20).err(), Some(20));
        assert_eq!(leader_handoff.pick_up(second), Some(1));
        assert_eq!(leader_handoff.take_back(ticket), None, "the other thread reads it");
        assert_eq!(leader_handoff.pick_up(first), None, "the other thread leads");
    }

    #[test]
    fn who_has_lost_the_lead_does_not_take_it_from_an_errand_of_the_other_thread() {
        let leader_handoff = leader_handoff();
        let first = leader_handoff.lay(1);
        let ticket = leader_handoff.put_down(10).unwrap();
        assert_eq!(leader_handoff.wait_for_lead(), (1, 10));
        assert_eq!(leader_handoff.take_back(ticket), None);
        // The other thread is quicker to begin an inline task than this one to end its task.
        let second = leader_handoff.lay(1);
        let ticket = leader_handoff.put_down(20).unwrap();
        assert_eq!(leader_handoff.pick_up(first), None);
        // So it looks out, and nobody else puts a connection where that of the inline task lies.
        assert_eq!(leader_handoff.wait_for_lead(), (1, 20));
        assert_eq!(leader_handoff.take_back(ticket), None);
        assert_eq!(leader_handoff.pick_up(second), None);
    }
}
