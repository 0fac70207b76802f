//! Agreement on a `colocate` between two servers: their managers decide which actor moves, without a global manager.

use elastin_types::{ActorId, NodeId, Resource};

use crate::context::Context;
use crate::local::LemCommand;
use crate::local::arbitrate::expected_place;
use crate::local::server::{OwnServer, Pair, partner};
use crate::{Change, End, Held, Proposal, Purpose, Refusal, Settle, SettleAnswer, record};

/// Number of pairs that a server settles per period; the others follow in later periods.
const SETTLES_MAX: usize = 1_024;

/// Factor by which the calls with another pinned partner must exceed those with the current one before an actor leaves.
/// Call counts vary a little between periods.
const MORE_CALLS: f64 = 1.25;

/// The end of a pair that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mover {
    First,
    Second,
}

/// The requests to the hosts of all actors that a rule colocates with an actor of this server.
pub(super) fn settles(context: &mut Context, server: &OwnServer, proposals: &[Proposal]) -> Vec<Settle> {
    let pairs = server
        .relations
        .pairs_together()
        .filter_map(
            |((one, other), relation)| match (server.units.contains(one), server.units.contains(other)) {
                (true, false) => Some((one, other, relation)),
                (false, true) => Some((other, one, relation)),
                _ => None,
            },
        );
    pairs
        // An actor that has just left together with its partner needs no agreement.
        .filter(|(_, other, _)| !server.statistics.has_left(other))
        .take(SETTLES_MAX)
        .filter_map(|(mine, other, relation)| {
            let end = end(context, server, mine, other, proposals)?;
            Some(Settle {
                settle: context.number(),
                cause: relation.cause.clone(),
                priority: relation.priority,
                calls: server.statistics.calls_between(mine, other),
                mine: end,
                other: other.clone(),
            })
        })
        .collect()
}

/// This server's end of a pair.
fn end(context: &Context, server: &OwnServer, mine: &ActorId, other: &ActorId, proposals: &[Proposal]) -> Option<End> {
    let unit = server.units.of(mine)?;
    // Both hosts must compare the same resource, so the lookup order is fixed.
    let (low, high) = (mine.min(other), mine.max(other));
    let critical = |actor: &ActorId| context.policy.critical_resource(actor.kind);
    let resource = critical(low).or_else(|| critical(high)).unwrap_or(Resource::Cpu);
    let about_to = proposals.iter().any(|proposal| {
        let actor = proposal.decision.actor();
        proposal.reservation.is_some() && actor.is_some_and(|actor| unit.actors.binary_search(actor).is_ok())
    });
    let pinned = match unit.held {
        Some(Held::Pinned(_, priority)) => Some(priority),
        _ => None,
    };
    Some(End {
        actor: mine.clone(),
        node: expected_place(context, server, mine, proposals),
        used: unit.used[resource],
        pinned,
        reserved: about_to || server.reservations.in_unit(unit).next().is_some(),
        recent: matches!(server.held(context, unit), Some(Held::Recent(_))),
    })
}

/// The answer to another server's request, and the proposal for this server's end if it is to move.
pub(super) fn answer(
    context: &mut Context,
    server: &mut OwnServer,
    proposals: &[Proposal],
    settle: Settle,
) -> (SettleAnswer, Option<Proposal>) {
    let Some(own) = end(context, server, &settle.other, &settle.mine.actor, proposals) else {
        return (SettleAnswer::Refuse(Refusal::NotHere), None);
    };
    if own.node == settle.mine.node {
        return (SettleAnswer::Stay, None);
    }
    if let Some(weaker) = weaker_pinned_partners(server, &settle) {
        // Among several pinned partners, the one with most calls wins.
        for pair in weaker {
            server.relations.give_up(pair);
        }
        server.rebuild_units(context);
        return answer(context, server, proposals, settle);
    }
    match choose_mover(&settle.mine, &own, settle.priority) {
        Err(refusal) => (SettleAnswer::Refuse(refusal), None),
        Ok(Mover::First) => (SettleAnswer::Come(own.node), None),
        Ok(Mover::Second) => {
            let proposal = proposal(context, &settle, &own.actor, &settle.mine.actor, settle.mine.node);
            (SettleAnswer::Stay, Some(proposal))
        }
    }
}

/// The pairs that keep the actor beside pinned ones here, if it may leave them all. That requires more calls with a
/// pinned partner on another server.
fn weaker_pinned_partners(server: &OwnServer, settle: &Settle) -> Option<Vec<Pair>> {
    let asked = &settle.other;
    let unit = server.units.of(asked)?;
    if settle.mine.pinned.is_none() || server.relations.pinned(asked).is_some() {
        return None;
    }
    let mut weaker = Vec::new();
    for (pair, _) in server.relations.pairs_together() {
        let pinned = partner(pair, asked)
            .filter(|partner| unit.actors.binary_search(partner).is_ok() && server.relations.pinned(partner).is_some());
        let Some(pinned) = pinned else { continue };
        let calls = server.statistics.calls_between(asked, pinned) as f64;
        if settle.calls as f64 <= MORE_CALLS * calls {
            return None;
        }
        weaker.push(pair.clone());
    }
    (!weaker.is_empty()).then_some(weaker)
}

/// Records that neither end of a pair moves.
pub(super) fn refuse(context: &mut Context, settle: Settle, refusal: Refusal, out: &mut Vec<LemCommand>) {
    let change = Change::moving(settle.mine.actor, context.node, None, Purpose::Colocate(settle.other));
    let decision = context.decision(Some(settle.cause), change, Vec::new());
    record::refuse(decision, refusal, out);
}

/// The proposal that an actor of this server moves to the other end of the pair.
pub(super) fn proposal(
    context: &mut Context,
    settle: &Settle,
    actor: &ActorId,
    beside: &ActorId,
    to: NodeId,
) -> Proposal {
    let change = Change::moving(actor.clone(), context.node, Some(to), Purpose::Colocate(beside.clone()));
    Proposal {
        decision: context.decision(Some(settle.cause.clone()), change, Vec::new()),
        priority: settle.priority,
        // Among several partners, the one with most calls wins.
        score: settle.calls as f64,
        reservation: None,
    }
}

/// Chooses the end that moves: the one with less use, unless it is held; on a tie, the lower id stays. The result
/// depends only on the two ends, so both hosts reach the same one.
fn choose_mover(first: &End, second: &End, priority: i32) -> Result<Mover, Refusal> {
    let pinned = |end: &End| end.pinned.is_some_and(|pinned| pinned >= priority);
    let fixed = |end: &End| pinned(end) || end.reserved;
    let mover = match (fixed(first), fixed(second)) {
        (true, true) if pinned(first) && pinned(second) => return Err(Refusal::BothPinned),
        (true, true) if first.reserved && second.reserved => return Err(Refusal::BothReserved),
        (true, true) => return Err(Refusal::PinnedAndReserved),
        (true, false) => Mover::Second,
        (false, true) => Mover::First,
        (false, false) => {
            let order = first
                .used
                .total_cmp(&second.used)
                .then_with(|| second.actor.cmp(&first.actor));
            if order.is_lt() { Mover::First } else { Mover::Second }
        }
    };
    let moving = match mover {
        Mover::First => first,
        Mover::Second => second,
    };
    if moving.recent {
        return Err(Refusal::CameRecently);
    }
    Ok(mover)
}

#[cfg(test)]
mod tests {
    use elastin_types::ActorType;

    use super::*;

    fn end(key: u64, used: f64) -> End {
        End {
            actor: ActorId::new(ActorType::of("A"), key),
            node: NodeId(key),
            used,
            pinned: None,
            reserved: false,
            recent: false,
        }
    }

    #[test]
    fn the_end_with_lower_use_moves_unless_it_is_held() {
        let check = |first: &End, second: &End, expected| {
            assert_eq!(choose_mover(first, second, 10), expected);
            let mirrored = expected.map(|mover| match mover {
                Mover::First => Mover::Second,
                Mover::Second => Mover::First,
            });
            assert_eq!(choose_mover(second, first, 10), mirrored, "both hosts agree");
        };
        let pinned = |end: End| End {
            pinned: Some(50),
            ..end
        };
        let reserved = |end: End| End { reserved: true, ..end };
        check(&end(1, 5.0), &end(2, 9.0), Ok(Mover::First));
        check(&end(1, 5.0), &end(2, 5.0), Ok(Mover::Second));
        check(&pinned(end(1, 5.0)), &end(2, 9.0), Ok(Mover::Second));
        check(&reserved(end(1, 5.0)), &end(2, 9.0), Ok(Mover::Second));
        check(&pinned(end(1, 5.0)), &pinned(end(2, 9.0)), Err(Refusal::BothPinned));
        check(
            &reserved(end(1, 5.0)),
            &reserved(end(2, 9.0)),
            Err(Refusal::BothReserved),
        );
        check(
            &pinned(end(1, 5.0)),
            &reserved(end(2, 9.0)),
            Err(Refusal::PinnedAndReserved),
        );
        let recent = End {
            recent: true,
            ..end(1, 5.0)
        };
        check(&recent, &end(2, 9.0), Err(Refusal::CameRecently));
    }

    #[test]
    fn a_pin_of_lower_priority_does_not_hold() {
        let weakly_pinned = End {
            pinned: Some(5),
            ..end(1, 5.0)
        };
        assert_eq!(choose_mover(&weakly_pinned, &end(2, 9.0), 10), Ok(Mover::First));
    }
}
