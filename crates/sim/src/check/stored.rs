//! Source: the contract's "of a persistent type a crash loses nothing that was saved", and the design's "every state
//! write carries the activation epoch, which the store only lets grow". A later activation finds every acknowledged
//! turn, stored epochs only grow, and no earlier activation writes once a later one runs.

use std::collections::BTreeMap;

use elastin_types::{ActivationEpoch, ActorId, CallId};

use super::{Turn, Violation};

/// Acknowledged writes are durable.
#[derive(Debug, Default)]
pub(crate) struct StoredStates {
    /// Turns with a reply that was sent but has not arrived.
    answered: BTreeMap<CallId, (ActorId, u64)>,
    acknowledged: BTreeMap<ActorId, u64>,
    written: BTreeMap<ActorId, ActivationEpoch>,
    running: BTreeMap<ActorId, ActivationEpoch>,
}

impl StoredStates {
    /// A persistent actor has answered a call, with the turn of this number.
    pub(crate) fn answered(&mut self, call: CallId, actor: &ActorId, turn: u64) {
        self.answered.insert(call, (actor.clone(), turn));
    }

    /// A reply has reached its caller.
    pub(crate) fn acknowledged(&mut self, call: CallId) {
        if let Some((actor, turn)) = self.answered.remove(&call) {
            let last = self.acknowledged.entry(actor).or_insert(0);
            *last = (*last).max(turn);
        }
    }

    /// An activation finds this many turns in the store.
    pub(crate) fn loaded(&self, actor: &ActorId, turns: u64) -> Result<(), Violation> {
        let acknowledged = self.acknowledged.get(actor).copied().unwrap_or(0);
        if turns >= acknowledged {
            return Ok(());
        }
        let description = format!("{actor:?} finds {turns} turns, but {acknowledged} were acknowledged");
        Violation::of("nothing acknowledged is lost", Some(actor), description)
    }

    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) {
        let running = self.running.entry(turn.actor.clone()).or_insert(turn.epoch);
        *running = (*running).max(turn.epoch);
    }

    /// An activation of a persistent actor starts a turn: it must have claimed its epoch.
    pub(crate) fn runs(&self, actor: &ActorId, epoch: ActivationEpoch) -> Result<(), Violation> {
        match self.written.get(actor) {
            Some(written) if *written >= epoch => Ok(()),
            written => {
                let description = format!("{actor:?} runs a turn of {epoch}, and the store has {written:?}");
                Violation::of(
                    "an activation claims its epoch before its first turn",
                    Some(actor),
                    description,
                )
            }
        }
    }

    /// A claim or a state was written.
    pub(crate) fn written(&mut self, actor: &ActorId, epoch: ActivationEpoch) -> Result<(), Violation> {
        let before = self.written.insert(actor.clone(), epoch).unwrap_or(epoch);
        if before > epoch {
            let description = format!("{actor:?} is written by {epoch} after {before}");
            return Violation::of("stored epochs only grow", Some(actor), description);
        }
        match self.running.get(actor) {
            Some(running) if *running > epoch => {
                let description = format!("{actor:?} is written by {epoch} while {running} runs");
                Violation::of("no write of an earlier activation lands", Some(actor), description)
            }
            _ => Ok(()),
        }
    }
}
