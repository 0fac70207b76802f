//! Leadership handoff between the two I/O threads while one runs a follow-up.
//!
//! Running a follow-up on the reading thread saves a wake. But it may run for long, and must not block other connections of the
//! thread, or later frames of its own connection. So the leader offers its poller before it runs a task, and the task offers its connection
//! before it begins a follow-up. The follower checks periodically, and takes over both if they are offered for too long.
//!
//! At most one follow-up runs at a time, so that one of the two threads is always free to lead. A thread that has lost the
//! leadership follows once its follow-up has completed.

use parking_lot::{Condvar, Mutex};

use crate::tuning::{FOLLOWER_CHECK_EVERY, FOLLOWER_IDLE_CHECKS_MAX};

/// Holds the poller and the connection that the leader offers.
pub(super) struct LeaderHandoff<Poller, Connection> {
    state: Mutex<State<Poller, Connection>>,
    follow_up_began: Condvar,
}

struct State<Poller, Connection> {
    /// The leader's poller, while it runs a task.
    poller: Option<Poller>,
    /// Counts takeovers.
    takeovers: u64,
    /// The connection whose reader runs a follow-up.
    connection: Option<Connection>,
    /// Counts follow-ups.
    follow_ups: u64,
    /// Whether a follow-up is running on the thread that has lost the leadership.
    blocked: bool,
    /// Whether there is a second thread.
    has_follower: bool,
    /// Whether the follower is parked.
    parked: bool,
}

/// Entitles the leader to reclaim its poller, unless the follower has taken over.
#[must_use]
pub(super) struct LeaderToken(u64);

/// Entitles a reader to reclaim its connection, unless the follower has taken it over.
#[must_use]
pub(crate) struct ConnectionToken(u64);

impl<Poller, Connection> Default for LeaderHandoff<Poller, Connection> {
    fn default() -> Self {
        let state = State {
            poller: None,
            takeovers: 0,
            connection: None,
            follow_ups: 0,
            blocked: false,
            has_follower: false,
            parked: false,
        };
        Self {
            state: Mutex::new(state),
            follow_up_began: Condvar::new(),
        }
    }
}

impl<Poller, Connection> LeaderHandoff<Poller, Connection> {
    /// Announces the follower.
    pub(super) fn add_follower(&self) {
        self.state.lock().has_follower = true;
    }

    /// Offers the poller while the leader runs a task.
    pub(super) fn offer_poller(&self, poller: Poller) -> LeaderToken {
        let mut state = self.state.lock();
        state.poller = Some(poller);
        LeaderToken(state.takeovers)
    }

    /// Reclaims the poller. None if the other thread has taken over: a poller offered now is that thread's.
    pub(super) fn reclaim_poller(&self, leader_token: LeaderToken) -> Option<Poller> {
        let mut state = self.state.lock();
        match state.takeovers == leader_token.0 {
            true => state.poller.take(),
            false => None,
        }
    }

    /// Offers a connection while its reader runs a follow-up. Returns it if there is no free follower.
    pub(super) fn offer_connection(&self, connection: Connection) -> Result<ConnectionToken, Connection> {
        let mut state = self.state.lock();
        if !state.has_follower || state.blocked {
            return Err(connection);
        }
        state.follow_ups += 1;
        state.connection = Some(connection);
        if std::mem::take(&mut state.parked) {
            self.follow_up_began.notify_one();
        }
        Ok(ConnectionToken(state.follow_ups))
    }

    /// Reclaims a connection. None if the other thread has taken it over.
    pub(super) fn reclaim_connection(&self, token: ConnectionToken) -> Option<Connection> {
        let mut state = self.state.lock();
        assert_eq!(state.follow_ups, token.0, "one connection is offered at a time");
        state.blocked = false;
        state.connection.take()
    }

    /// Waits until a follow-up blocks the leader, and takes over its poller and connection.
    pub(super) fn wait_for_takeover(&self) -> (Poller, Connection) {
        let mut state = self.state.lock();
        let (mut seen, mut idle_checks) = (None, 0);
        loop {
            let is_unchanged = seen == Some(state.follow_ups);
            if is_unchanged && let Some(connection) = state.connection.take() {
                state.blocked = true;
                state.takeovers += 1;
                let poller = state.poller.take().expect("the poller is offered before a task runs");
                return (poller, connection);
            }
            idle_checks = if is_unchanged { idle_checks + 1 } else { 0 };
            seen = Some(state.follow_ups);
            if idle_checks < FOLLOWER_IDLE_CHECKS_MAX {
                self.follow_up_began.wait_for(&mut state, FOLLOWER_CHECK_EVERY);
                continue;
            }
            state.parked = true;
            self.follow_up_began.wait(&mut state);
            state.parked = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handoff whose poller and connections are numbers.
    fn leader_handoff() -> LeaderHandoff<u32, u32> {
        let leader_handoff = LeaderHandoff::default();
        leader_handoff.add_follower();
        leader_handoff
    }

    #[test]
    fn the_leader_keeps_leading_after_a_short_follow_up() {
        let leader_handoff = leader_handoff();
        let leader_token = leader_handoff.offer_poller(1);
        let connection_token = leader_handoff.offer_connection(10).unwrap();
        assert_eq!(leader_handoff.reclaim_connection(connection_token), Some(10));
        assert_eq!(leader_handoff.reclaim_poller(leader_token), Some(1));
    }

    #[test]
    fn no_second_follow_up_begins_while_one_takes_long() {
        let leader_handoff = leader_handoff();
        let first = leader_handoff.offer_poller(1);
        let connection_token = leader_handoff.offer_connection(10).unwrap();
        assert_eq!(leader_handoff.wait_for_takeover(), (1, 10));
        let second = leader_handoff.offer_poller(1);
        assert_eq!(leader_handoff.offer_connection(20).err(), Some(20));
        assert_eq!(leader_handoff.reclaim_poller(second), Some(1));
        assert_eq!(
            leader_handoff.reclaim_connection(connection_token),
            None,
            "the other thread has taken it over"
        );
        assert_eq!(leader_handoff.reclaim_poller(first), None, "the other thread leads");
    }

    #[test]
    fn a_former_leader_can_take_over_again() {
        let leader_handoff = leader_handoff();
        let first = leader_handoff.offer_poller(1);
        let connection_token = leader_handoff.offer_connection(10).unwrap();
        assert_eq!(leader_handoff.wait_for_takeover(), (1, 10));
        assert_eq!(leader_handoff.reclaim_connection(connection_token), None);
        // The other thread begins a follow-up before this one completes its task.
        let second = leader_handoff.offer_poller(1);
        let connection_token = leader_handoff.offer_connection(20).unwrap();
        assert_eq!(leader_handoff.reclaim_poller(first), None);
        // So this thread follows, and the connection of that follow-up is still offered.
        assert_eq!(leader_handoff.wait_for_takeover(), (1, 20));
        assert_eq!(leader_handoff.reclaim_connection(connection_token), None);
        assert_eq!(leader_handoff.reclaim_poller(second), None);
    }
}
