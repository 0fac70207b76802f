//! Source: the design's "one activation at a time". Turns of an actor never overlap. Once a turn of an activation has
//! started, no turn of an earlier activation starts.

use std::collections::BTreeMap;

use elastin_types::{ActivationEpoch, ActorId, NodeId};

use super::{Turn, Violation};

/// One executing activation per actor.
#[derive(Debug, Default)]
pub(crate) struct OneActivation {
    actors: BTreeMap<ActorId, Executing>,
}

#[derive(Debug)]
struct Executing {
    latest: ActivationEpoch,
    running: Option<(ActivationEpoch, NodeId)>,
}

impl OneActivation {
    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        let executing = self.actors.entry(turn.actor.clone()).or_insert(Executing {
            latest: turn.epoch,
            running: None,
        });
        let running = executing.running.replace((turn.epoch, turn.node));
        let description = if let Some((epoch, node)) = running {
            format!(
                "{:?} starts a turn of {} on {} while {epoch} runs one on {node}",
                turn.actor, turn.epoch, turn.node
            )
        } else if turn.epoch < executing.latest {
            format!(
                "{:?} starts a turn of {} on {} after {} has run",
                turn.actor, turn.epoch, turn.node, executing.latest
            )
        } else {
            executing.latest = turn.epoch;
            return Ok(());
        };
        Violation::of("one activation at a time", Some(turn.actor), description)
    }

    pub(crate) fn turn_ends(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        if let Some(executing) = self.actors.get_mut(actor)
            && executing.running.is_some_and(|(running, _)| running == epoch)
        {
            executing.running = None;
        }
    }

    /// A node has stopped, and its turns with it.
    pub(crate) fn node_stops(&mut self, node: NodeId) {
        for executing in self.actors.values_mut() {
            if executing.running.is_some_and(|(_, on)| on == node) {
                executing.running = None;
            }
        }
    }
}
