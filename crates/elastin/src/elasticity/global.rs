//! Driver of the global elasticity manager, which records its decisions in the cluster's status.

use std::sync::Arc;

use elastin_control::{Config, ControlMessage, Gem, GemCommand, GemEvent};
use elastin_policy::Policy;
use elastin_types::{NodeId, Time};
use parking_lot::Mutex;

use crate::settings::ClusterSettings;
use crate::status::Status;

/// The global manager, which runs on the supervisor, or on a server if there is no supervisor.
pub(crate) struct Global {
    gem: Gem,
    status: Arc<Mutex<Status>>,
}

impl Global {
    pub(crate) fn new(
        node: NodeId,
        policy: Arc<Policy>,
        settings: &ClusterSettings,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let config = Config {
            node,
            policy,
            settings: settings.elasticity(),
            seed: node.0,
        };
        let gem = Gem::new(config);
        Self { gem, status }
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.gem.next_timer()
    }

    /// Handles an event and records reports, decisions and capacities. The caller executes the returned commands in
    /// order.
    pub(crate) fn handle(&mut self, now: Time, event: GemEvent) -> Vec<GemCommand> {
        if let GemEvent::Message {
            message: ControlMessage::Report(report),
            ..
        } = &event
        {
            let reserved_for = report.reservations.iter().map(|reservation| reservation.actor.clone());
            self.status.lock().record_report(&report.server, reserved_for.collect());
        }
        let mut commands = Vec::new();
        self.gem.handle(now, event, &mut commands);
        commands.retain_mut(|command| match command {
            GemCommand::Record(decision) => {
                self.status.lock().record_decision((**decision).clone());
                false
            }
            GemCommand::Measured(capacity) => {
                self.status.lock().record_capacity(*capacity);
                false
            }
            GemCommand::Send { .. } | GemCommand::AddServers { .. } | GemCommand::RemoveServer { .. } => true,
        });
        commands
    }
}
