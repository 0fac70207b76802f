//! Execution: moves in flight and their results.

use std::collections::BTreeMap;

use elastin_types::{ActorId, NodeId, Time};

use super::Lem;
use super::event::{LemCommand, MoveId};
use crate::{ControlMessage, Decision, Outcome, Proposal};

/// Periods after which a move in flight counts as lost. The protocol ends every move long before.
const MOVE_PERIODS_MAX: u32 = 10;

/// The moves in flight from one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    /// The batch and the actor of each move.
    by_id: BTreeMap<MoveId, (u64, ActorId)>,
    /// Moves that were decided and admitted together, by query number.
    batches: BTreeMap<u64, Batch>,
}

#[derive(Clone, Debug)]
struct Batch {
    decision: Decision,
    to: NodeId,
    started: Time,
    open: usize,
    moved: Vec<ActorId>,
    failed: Vec<(ActorId, String)>,
}

impl Moves {
    /// Whether this actor is moving.
    pub(crate) fn contains(&self, actor: &ActorId) -> bool {
        self.by_id.values().any(|(_, moving)| moving == actor)
    }

    /// Number of moving actors.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn lost(&self, now: Time, limit: std::time::Duration) -> Vec<MoveId> {
        self.by_id
            .iter()
            .filter(|(_, (batch, _))| {
                self.batches
                    .get(batch)
                    .is_some_and(|batch| now.since(batch.started) > limit)
            })
            .map(|(id, _)| *id)
            .collect()
    }
}

impl Lem {
    /// Starts the moves of an admitted unit.
    pub(super) fn start_moves(
        &mut self,
        now: Time,
        query: u64,
        proposal: Proposal,
        actors: Vec<ActorId>,
        to: NodeId,
        out: &mut Vec<LemCommand>,
    ) {
        let decision = proposal.decision.with_outcome(Outcome::Started);
        out.push(LemCommand::record(decision.clone()));
        let batch = Batch {
            decision,
            to,
            started: now,
            open: actors.len(),
            moved: Vec::new(),
            failed: Vec::new(),
        };
        self.moves.batches.insert(query, batch);
        for actor in actors {
            let id = MoveId(self.number());
            self.moves.by_id.insert(id, (query, actor.clone()));
            out.push(LemCommand::Move { id, actor, to });
        }
    }

    /// Ends a move. A repeated end, or the end of a move that was given up, has no effect.
    pub(super) fn end_move(&mut self, now: Time, id: MoveId, result: Result<(), String>, out: &mut Vec<LemCommand>) {
        let Some((query, actor)) = self.moves.by_id.remove(&id) else {
            return;
        };
        let used = self.stats(&actor).map(|stats| stats.used).unwrap_or_default();
        let batch = self
            .moves
            .batches
            .get_mut(&query)
            .expect("a batch is kept while one of its moves is open");
        batch.open -= 1;
        match result {
            Ok(()) => {
                batch.moved.push(actor.clone());
                self.gone.insert(actor.clone());
                self.departures.push((now, used));
                self.reservations.remove(&actor);
            }
            Err(why) => batch.failed.push((actor, why)),
        }
        if batch.open > 0 {
            return;
        }
        let batch = self.moves.batches.remove(&query).expect("the batch was found above");
        if batch.moved.is_empty() {
            out.push(LemCommand::Send {
                to: batch.to,
                message: ControlMessage::Withdraw { query },
            });
        }
        let outcome = batch.outcome();
        out.push(LemCommand::record(batch.decision.with_outcome(outcome)));
        self.rebuild_units();
    }

    /// Fails moves whose end was never reported.
    pub(super) fn end_lost_moves(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        for id in self.moves.lost(now, self.settings.period * MOVE_PERIODS_MAX) {
            self.end_move(now, id, Err("its end was never reported".into()), out);
        }
    }
}

impl Batch {
    fn outcome(&self) -> Outcome {
        let main = self.decision.actor();
        // Of several failures, report the one of the actor that the decision is about.
        let reported = self.failed.iter().find(|(actor, _)| Some(actor) == main);
        let Some((_, why)) = reported.or(self.failed.first()) else {
            return Outcome::Done;
        };
        match (self.failed.len(), self.failed.len() + self.moved.len()) {
            (1, 1) => Outcome::Failed(why.clone()),
            (failed, all) => Outcome::Failed(format!("{failed} of {all} did not move: {why}")),
        }
    }
}
