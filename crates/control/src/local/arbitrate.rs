//! Arbitrate: one proposal per unit wins. A single arbiter keeps rules from working against each other.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use elastin_types::{ActorId, NodeId};

use super::LemCommand;
use super::admit::Queries;
use super::server::OwnServer;
use crate::context::Context;
use crate::record::refuse;
use crate::{Change, Held, Proposal, Purpose, Refusal, Unit};

/// Maximum number of proposals per round. A global manager sends fewer; omitted ones are proposed again.
pub(super) const PROPOSALS_MAX: usize = 4_096;

/// Selects one proposal per unit and queries its target.
pub(super) fn arbitrate(
    context: &mut Context,
    server: &mut OwnServer,
    queries: &mut Queries,
    mut proposals: Vec<Proposal>,
    out: &mut Vec<LemCommand>,
) {
    proposals.truncate(PROPOSALS_MAX);
    proposals.sort_by(best_first);
    let mut taken: BTreeSet<ActorId> = BTreeSet::new();
    for proposal in proposals {
        let Some((actor, to)) = moved(&proposal) else {
            out.push(proposal.decision.into());
            continue;
        };
        let Some(unit) = server.units.of(actor).cloned() else {
            refuse(proposal.decision, Refusal::NotHere, out);
            continue;
        };
        let refusal = if taken.contains(&unit.lead) {
            Some(Refusal::Outranked)
        } else if !is_drain(&proposal) && exceeds_moves_max(context, server, &unit) {
            Some(Refusal::EnoughMoves)
        } else {
            objection(context, server, &proposal, &unit)
        };
        match refusal {
            Some(refusal) => refuse(proposal.decision, refusal, out),
            None => {
                taken.insert(unit.lead.clone());
                queries.ask(context, server, proposal, unit, to, out);
            }
        }
    }
}

/// The server that an actor will be on, given the proposals so far.
pub(super) fn expected_place(context: &Context, server: &OwnServer, actor: &ActorId, proposals: &[Proposal]) -> NodeId {
    let best = server.units.of(actor).and_then(|unit| {
        let concerns = |proposal: &&Proposal| {
            let moved = proposal.decision.actor();
            moved.is_some_and(|moved| unit.actors.contains(moved))
                && objection(context, server, proposal, unit).is_none()
        };
        proposals
            .iter()
            .filter(concerns)
            .min_by(|one, other| best_first(one, other))
    });
    best.and_then(moved).map_or(context.node, |(_, to)| to)
}

/// Why this server does not let a unit move for a proposal.
fn objection(context: &Context, server: &OwnServer, proposal: &Proposal, unit: &Unit) -> Option<Refusal> {
    if unit.actors.iter().any(|actor| server.in_flight.contains(actor)) {
        return Some(Refusal::OnTheMove);
    }
    if is_drain(proposal) {
        return None;
    }
    match server.held(context, unit) {
        Some(Held::Pinned(actor, priority)) if priority >= proposal.priority => return Some(Refusal::Pinned(actor)),
        Some(Held::Recent(_)) => return Some(Refusal::CameRecently),
        _ => {}
    }
    if proposal.reservation.is_some() {
        return None;
    }
    let mut reserved = server
        .reservations
        .in_unit(unit)
        .filter(|reservation| reservation.arrived);
    reserved
        .next()
        .map(|reservation| Refusal::Reserved(reservation.actor.clone()))
}

/// Whether the unit would exceed the number of moves per period. A larger unit may still move, alone.
fn exceeds_moves_max(context: &Context, server: &OwnServer, unit: &Unit) -> bool {
    let in_flight = server.in_flight.len();
    in_flight > 0 && in_flight + unit.actors.len() > context.settings.moves_max
}

fn moved(proposal: &Proposal) -> Option<(&ActorId, NodeId)> {
    match &proposal.decision.change {
        Change::Move {
            actor, to: Some(to), ..
        } => Some((actor, *to)),
        _ => None,
    }
}

fn is_drain(proposal: &Proposal) -> bool {
    matches!(
        proposal.decision.change,
        Change::Move {
            purpose: Purpose::Drain,
            ..
        }
    )
}

/// The highest priority first, then the earlier rule, the higher score and the lower actor id. Draining a server comes
/// before all: rules cannot prevent it.
fn best_first(one: &Proposal, other: &Proposal) -> Ordering {
    let rule = |proposal: &Proposal| proposal.decision.cause.as_ref().map_or(usize::MAX, |cause| cause.rule);
    is_drain(other)
        .cmp(&is_drain(one))
        .then(other.priority.cmp(&one.priority))
        .then(rule(one).cmp(&rule(other)))
        .then(other.score.total_cmp(&one.score))
        .then_with(|| one.decision.actor().cmp(&other.decision.actor()))
        .then(one.decision.id.cmp(&other.decision.id))
}
