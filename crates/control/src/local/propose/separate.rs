//! `separate`: moves one of two actors that must not share this server to a server that can take it.

use elastin_policy::{Index, Variable};
use elastin_types::{ActorId, NodeId, Resource, ServerState};

use crate::context::Context;
use crate::decision::{best, rank};
use crate::limits::capacity;
use crate::local::server::OwnServer;
use crate::place::is_separated;
use crate::{Candidate, Cause, Change, Outcome, Proposal, Purpose, Refusal, ServerDigest, Unit};

/// Number of separations proposed per period; the others follow in later periods.
const SEPARATIONS_MAX: usize = 64;

/// Number of units of each type that a rule between types examines per period.
const SIDE_MAX: usize = 256;

/// An actor that has to move away from another.
struct Separation {
    leaving: ActorId,
    other: ActorId,
    cause: Cause,
    priority: i32,
}

/// Proposes to separate all actors that must not share this server.
pub(super) fn propose(
    context: &mut Context,
    server: &OwnServer,
    known: &[ServerDigest],
    proposals: &mut Vec<Proposal>,
) {
    let mut separations = pairs_to_separate(context, server);
    separations.extend(types_to_separate(context, server));
    // Servers chosen earlier in this round are fuller than their digests show, so later separations avoid them.
    let mut chosen = Vec::new();
    for separation in separations.into_iter().take(SEPARATIONS_MAX) {
        let mut candidates: Vec<Candidate> = match server.units.of(&separation.leaving) {
            Some(unit) => known
                .iter()
                .filter(|digest| digest.server.node != context.node)
                .map(|digest| candidate(context, unit, digest, &chosen))
                .collect(),
            None => Vec::new(),
        };
        rank(&mut candidates);
        let to = best(&candidates);
        chosen.extend(to);
        let purpose = Purpose::Separate(separation.other);
        let change = Change::moving(separation.leaving, context.node, to, purpose);
        let mut decision = context.decision(Some(separation.cause), change, candidates);
        if to.is_none() {
            decision.outcome = Outcome::Refused(Refusal::NoServer);
        }
        proposals.push(Proposal {
            decision,
            priority: separation.priority,
            score: 0.0,
            reservation: None,
        });
    }
}

fn pairs_to_separate(context: &Context, server: &OwnServer) -> Vec<Separation> {
    server
        .relations
        .pairs_apart()
        .filter_map(|((one, other), relation)| {
            let (first, second) = (server.units.of(one)?, server.units.of(other)?);
            if first.lead == second.lead {
                return None;
            }
            let (leaving, other) = if leaves_first(context, server, first, second, relation.priority) {
                (one, other)
            } else {
                (other, one)
            };
            Some(Separation {
                leaving: leaving.clone(),
                other: other.clone(),
                cause: relation.cause.clone(),
                priority: relation.priority,
            })
        })
        .collect()
}

/// A rule between types is never expanded into all pairs: each leaving unit is paired with one unit that stays.
fn types_to_separate(context: &Context, server: &OwnServer) -> Vec<Separation> {
    let policy = &context.policy;
    let mut separations = Vec::new();
    let has_condition = |rule: &usize| !policy.rules()[*rule].condition.is_trivial();
    let conditional = policy.type_separations().any(|rule| has_condition(&rule));
    let facts = conditional.then(|| Index::new(server.statistics.snapshot()));
    for index in policy.type_separations() {
        let rule = &policy.rules()[index];
        let priority = rule.priority_of(&rule.behaviours[0]);
        let [first, second] = &rule.variables[..] else { continue };
        let (leaving, staying) = sides(context, server, first, second, priority);
        let fires = |unit: &Unit, other: &Unit| {
            let facts = facts.as_ref();
            facts.is_some_and(|facts| policy.separates(facts, index, &unit.lead, &other.lead))
        };
        let holds = |unit: &Unit, other: &Unit| {
            // A unit with actors of both types is kept together by another rule. If a type is separated from itself,
            // the lowest unit stays.
            let apart = unit.lead != other.lead && (other.lead < unit.lead || !has_both(unit, first, second));
            apart && (!has_condition(&index) || fires(unit, other))
        };
        for unit in leaving {
            let Some(other) = staying.iter().find(|other| holds(unit, other)) else {
                continue;
            };
            separations.push(Separation {
                leaving: unit.lead.clone(),
                other: other.lead.clone(),
                cause: Cause {
                    rule: index,
                    name: rule.name.clone(),
                    text: rule.text.clone(),
                    binding: Vec::new(),
                    server: None,
                    values: Vec::new(),
                },
                priority,
            });
        }
    }
    separations
}

/// The units of the leaving type and of the staying type. The type that is free to move leaves, then the one with less
/// use.
fn sides<'a>(
    context: &Context,
    server: &'a OwnServer,
    first: &Variable,
    second: &Variable,
    priority: i32,
) -> (Vec<&'a Unit>, Vec<&'a Unit>) {
    let of = |variable: &Variable| -> Vec<&Unit> {
        let admitted = |unit: &&Unit| unit.actors.iter().any(|actor| variable.admits(actor.kind));
        server.units.iter().filter(admitted).take(SIDE_MAX).collect()
    };
    let weight = |units: &[&Unit]| {
        let stuck = units.iter().filter(|unit| is_held(context, server, unit, priority));
        let used: f64 = units.iter().map(|unit| unit.used.cpu).sum();
        (stuck.count(), used)
    };
    let (ones, others) = (of(first), of(second));
    if weight(&ones) <= weight(&others) {
        (ones, others)
    } else {
        (others, ones)
    }
}

/// Whether the first of two units is the one to leave: the one that is free to move, then the one with less use.
fn leaves_first(context: &Context, server: &OwnServer, first: &Unit, second: &Unit, priority: i32) -> bool {
    let is_held = |unit: &Unit| is_held(context, server, unit, priority);
    match (is_held(first), is_held(second)) {
        (true, false) => false,
        (false, true) => true,
        _ => first.used[Resource::Cpu] <= second.used[Resource::Cpu],
    }
}

fn is_held(context: &Context, server: &OwnServer, unit: &Unit, priority: i32) -> bool {
    let held = server.held(context, unit);
    held.is_some_and(|held| held.holds_against(priority))
}

/// A candidate server for a unit, scored by the room left after the move.
fn candidate(context: &Context, unit: &Unit, digest: &ServerDigest, chosen: &[NodeId]) -> Candidate {
    let server = &digest.server;
    let policy = &context.policy;
    let resource = policy.critical_resource(unit.lead.kind).unwrap_or(Resource::Cpu);
    let used = server.usage[resource].used + unit.used[resource];
    let percent = capacity(server, resource).map_or(0.0, |capacity| 100.0 * used / capacity);
    let kept_apart = |actor: &ActorId| is_separated(policy, actor.kind, &digest.separated_kinds);
    let refused = if server.state == ServerState::Draining {
        Some(Refusal::Draining)
    } else if let Some(reserved) = digest.reserved.first() {
        Some(Refusal::ServerReserved(reserved.clone()))
    } else if unit.refused_by.contains(&server.node) {
        Some(Refusal::RefusedBefore)
    } else if chosen.contains(&server.node) || unit.actors.iter().any(kept_apart) {
        Some(Refusal::KeptApartFromType)
    } else if percent > 100.0 {
        Some(Refusal::NoRoom {
            resource,
            percent,
            limit: 100.0,
        })
    } else {
        None
    };
    Candidate {
        node: server.node,
        score: 100.0 - percent,
        refused,
    }
}

/// Whether a unit has actors matching both variables of a rule.
fn has_both(unit: &Unit, first: &Variable, second: &Variable) -> bool {
    let admits = |variable: &Variable| unit.actors.iter().any(|actor| variable.admits(actor.kind));
    admits(first) && admits(second)
}
