//! Draining servers: their actors move wherever there is room, regardless of rules.

use elastin_types::{ActorId, NodeId, Resource};

use super::Gem;
use super::event::GemCommand;
use super::room::{Terms, candidates_under};
use crate::decision::best;
use crate::record::refuse;
use crate::{Candidate, Change, Proposal, Purpose, Refusal, Unit};

impl Gem {
    /// Proposes a target for every unit on the servers that are being drained.
    pub(super) fn plan_drains(&mut self, out: &mut Vec<GemCommand>) {
        let leaving: Vec<(NodeId, ActorId)> = self
            .view
            .servers
            .values()
            .filter(|server| server.is_draining() && server.is_open)
            .flat_map(|server| {
                let node = server.node();
                server.report.units.iter().map(move |unit| (node, unit.lead.clone()))
            })
            .collect();
        for (from, lead) in leaving {
            let Some(unit) = self.unit(from, &lead) else { continue };
            let candidates = self.refuges(&unit, from);
            let to = best(&candidates);
            let change = Change::moving(self.main_actor(from, &unit), from, to, Purpose::Drain);
            let decision = self.context.decision(None, change, candidates);
            if to.is_none() {
                refuse(decision, Refusal::NoServer, out);
                continue;
            }
            let proposal = Proposal {
                decision,
                priority: i32::MAX,
                score: 0.0,
                reservation: None,
            };
            self.propose(proposal, &lead);
        }
    }

    /// Targets for a unit that must leave: within the bounds of rules, else wherever most room is.
    fn refuges(&self, unit: &Unit, from: NodeId) -> Vec<Candidate> {
        let resource = self
            .context
            .policy
            .critical_resource(unit.lead.kind)
            .unwrap_or(Resource::Cpu);
        // Ignore refusals of the previous period: the actor must go somewhere.
        let unit = Unit {
            refused_by: Vec::new(),
            ..unit.clone()
        };
        let terms = [Terms::named(&self.context.policy), Terms::WHOLE, Terms::FORCED];
        candidates_under(&self.context.policy, &self.view, &unit, from, resource, &terms)
    }

    pub(super) fn unit(&self, node: NodeId, lead: &ActorId) -> Option<Unit> {
        let units = &self.view.get(node)?.report.units;
        units.iter().find(|unit| unit.lead == *lead).cloned()
    }

    /// The actor that represents the unit in a record: the reserved one, if any.
    fn main_actor(&self, node: NodeId, unit: &Unit) -> ActorId {
        let reserved = self.view.get(node).and_then(|server| {
            let actors = server.reservations.iter().map(|reservation| &reservation.actor);
            actors.into_iter().find(|actor| unit.actors.contains(actor)).cloned()
        });
        reserved.unwrap_or_else(|| unit.lead.clone())
    }
}
