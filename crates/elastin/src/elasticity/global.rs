//! A global elasticity manager and what it leaves behind for people to look at.

use std::sync::Arc;

use elastin_control::{Config, ControlMessage, Gem, GemCommand, GemEvent};
use elastin_policy::Policy;
use elastin_types::{NodeId, Time};
use parking_lot::Mutex;

use crate::settings::ClusterSettings;
use crate::status::Status;

/// A global manager, run by whichever node is to: the supervisor, or a server without one.
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

    /// Tells it something, and keeps what is for the record. The rest of its commands are for the caller to carry out, in
    /// order.
    pub(crate) fn tell(&mut self, now: Time, event: GemEvent) -> Vec<GemCommand> {
        if let GemEvent::Message {
            message: ControlMessage::Report(report),
            ..
        } = &event
        {
            let reserved_for = report.reservations.iter().map(|reservation| reservation.actor.clone());
            self.status.lock().reported(&report.server, reserved_for.collect());
        }
        let mut commands = Vec::new();
        self.gem.handle(now, event, &mut commands);
        commands.retain_mut(|command| match command {
            GemCommand::Record(decision) => {
                self.status.lock().decided((**decision).clone());
                false
            }
            GemCommand::Measured(capacity) => {
                self.status.lock().measured(*capacity);
                false
            }
            GemCommand::Send { .. } | GemCommand::AddServers { .. } | GemCommand::RemoveServer { .. } => true,
        });
        commands
    }
}
