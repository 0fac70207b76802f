//! The end of an elasticity period: passes its measurements to the local elasticity manager.

use elastin_control::LemEvent;
use elastin_runtime::Interest;
use elastin_types::{ServerState, Snapshot};

use super::event_loop::Server;
use super::managers::ManagerEvent;
use crate::metrics::LastPeriod;

impl Server {
    /// Ends a period: takes a snapshot and lets the local manager decide on it.
    pub(super) fn end_period(&mut self) {
        let draining = self
            .roster
            .members
            .get(&self.member.me)
            .is_some_and(|record| record.draining);
        let interest = match self.lem.wants_all_actors() {
            true => Interest::All,
            false => Interest::Types {
                busy: self.policy.interest().kinds.clone(),
                always: self.policy.kinds_while_idle(),
            },
        };
        let measured = self.member.runtime.snapshot(&interest);
        let mut server = measured.server;
        server.state = if draining {
            ServerState::Draining
        } else {
            ServerState::Active
        };
        server.usage.cpu = self.usage.processor(server.usage.cpu.used);
        server.usage.mem = self.usage.memory();
        server.usage.net = self.usage.network(self.member.driver.traffic_bytes());
        *self.last_period.lock() = LastPeriod {
            server: Some(server.clone()),
            mailbox_messages: measured.mailbox_messages,
        };
        tracing::debug!(?server, "period ended");
        for actor in &measured.actors {
            tracing::trace!(?actor, "measured in the period");
        }
        let at = self.member.runtime.now();
        let snapshot = Snapshot {
            at,
            period: measured.period,
            servers: vec![server],
            actors: measured.actors,
        };
        self.dispatch([ManagerEvent::Local(LemEvent::Period(snapshot))]);
    }
}
