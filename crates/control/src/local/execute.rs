//! Execute: moves in flight and their results.

use std::collections::BTreeMap;

use elastin_types::{ActorId, NodeId, Time};

use super::admit::OpenQuery;
use super::event::{LemCommand, MoveId};
use super::server::OwnServer;
use crate::context::Context;
use crate::record::record;
use crate::{ControlMessage, Decision, Outcome};

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
    moved: usize,
    failed: Vec<(ActorId, String)>,
}

impl Moves {
    /// Starts the moves of a unit whose query was admitted.
    pub(crate) fn start(&mut self, context: &mut Context, query: u64, admitted: OpenQuery, out: &mut Vec<LemCommand>) {
        let OpenQuery {
            proposal, actors, to, ..
        } = admitted;
        record(proposal.decision.clone(), Outcome::Started, out);
        let batch = Batch {
            decision: proposal.decision,
            to,
            started: context.now,
            open: actors.len(),
            moved: 0,
            failed: Vec::new(),
        };
        self.batches.insert(query, batch);
        for actor in actors {
            let id = MoveId(context.number());
            self.by_id.insert(id, (query, actor.clone()));
            out.push(LemCommand::Move { id, actor, to });
        }
    }

    /// Ends a move. A repeated end, or the end of a move that was given up, has no effect.
    pub(crate) fn end(
        &mut self,
        context: &Context,
        server: &mut OwnServer,
        id: MoveId,
        result: Result<(), String>,
        out: &mut Vec<LemCommand>,
    ) {
        let Some((query, actor)) = self.by_id.remove(&id) else {
            return;
        };
        server.in_flight.remove(&actor);
        let batch = self
            .batches
            .get_mut(&query)
            .expect("a batch is kept while one of its moves is open");
        batch.open -= 1;
        match result {
            Ok(()) => {
                batch.moved += 1;
                server.remove(context, &actor);
            }
            Err(why) => batch.failed.push((actor, why)),
        }
        if batch.open > 0 {
            return;
        }
        let batch = self.batches.remove(&query).expect("the batch was found above");
        if batch.moved == 0 {
            out.push(LemCommand::send(batch.to, ControlMessage::Withdraw { query }));
        }
        let outcome = batch.outcome();
        record(batch.decision, outcome, out);
        server.rebuild_units(context);
    }

    /// Fails moves whose end was never reported.
    pub(crate) fn end_lost(&mut self, context: &Context, server: &mut OwnServer, out: &mut Vec<LemCommand>) {
        let limit = context.settings.period * MOVE_PERIODS_MAX;
        let is_lost = |query: &u64| context.now.since(self.batches[query].started) > limit;
        let lost: Vec<MoveId> = self
            .by_id
            .iter()
            .filter(|(_, (query, _))| is_lost(query))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.end(context, server, id, Err("its end was never reported".into()), out);
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
        match (self.failed.len(), self.failed.len() + self.moved) {
            (1, 1) => Outcome::Failed(why.clone()),
            (failed, all) => Outcome::Failed(format!("{failed} of {all} did not move: {why}")),
        }
    }
}
