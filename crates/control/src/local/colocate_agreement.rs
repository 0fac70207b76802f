//! Agreement on a `colocate` between two servers: their managers decide which actor moves, without a global manager.

use std::collections::BTreeMap;

use elastin_types::{ActorId, NodeId, Resource, Time};

use super::Lem;
use super::event::LemCommand;
use super::relations::Pair;
use super::round::{Phase, Round};
use crate::settings::part;
use crate::{
    Cause, Change, ControlMessage, End, Held, Outcome, Proposal, Purpose, Refusal, Settle, SettleAnswer, SettleReply,
};

/// Number of pairs that a server settles per period; the others follow in later periods.
const SETTLES_MAX: usize = 1_024;

/// Factor by which the calls with another pinned partner must exceed those with the current one before an actor leaves.
/// Call counts vary a little between periods.
const MORE_CALLS: f64 = 1.25;

/// A request to the host of a related actor that has not been answered yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenSettle {
    settle: Settle,
}

/// The end of a pair that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mover {
    First,
    Second,
}

impl Lem {
    /// Asks the hosts of all actors that a rule colocates with an actor of this server.
    pub(super) fn start_settling(&mut self, now: Time, mut proposals: Vec<Proposal>, out: &mut Vec<LemCommand>) {
        self.propose_separation(now, &mut proposals);
        let mut open = BTreeMap::new();
        for settle in self.settles(now, &proposals) {
            out.push(LemCommand::SendToHost {
                actor: settle.other.clone(),
                message: ControlMessage::Settle(Box::new(settle.clone())),
            });
            open.insert(settle.settle, OpenSettle { settle });
        }
        if open.is_empty() {
            self.round = None;
            return self.resolve(now, proposals, out);
        }
        self.round = Some(Round {
            phase: Phase::Settling(open),
            until: now + self.settings.limit(part::SETTLE),
            proposals,
        });
    }

    fn settles(&mut self, now: Time, proposals: &[Proposal]) -> Vec<Settle> {
        let pairs: Vec<(ActorId, ActorId, Cause, i32)> = self
            .relations
            .pairs_together()
            .filter_map(|((one, other), relation)| {
                let (mine, other) = match (self.units.contains(one), self.units.contains(other)) {
                    (true, false) => (one, other),
                    (false, true) => (other, one),
                    _ => return None,
                };
                Some((mine.clone(), other.clone(), relation.cause.clone(), relation.priority))
            })
            // An actor that has just left together with its partner needs no agreement.
            .filter(|(_, other, ..)| !self.gone.contains(other))
            .take(SETTLES_MAX)
            .collect();
        let mut settles = Vec::with_capacity(pairs.len());
        for (mine, other, cause, priority) in pairs {
            let Some(end) = self.end(now, &mine, &other, proposals) else {
                continue;
            };
            settles.push(Settle {
                settle: self.number(),
                cause,
                priority,
                calls: self.calls_between(&mine, &other),
                mine: end,
                other,
            });
        }
        settles
    }

    /// This server's end of a pair.
    fn end(&self, now: Time, mine: &ActorId, other: &ActorId, proposals: &[Proposal]) -> Option<End> {
        let unit = self.units.of(mine)?;
        let (low, high) = if mine <= other { (mine, other) } else { (other, mine) };
        // Both hosts must compare the same resource, so the lookup order is fixed.
        let resource = self
            .policy
            .critical_resource(low.kind)
            .or_else(|| self.policy.critical_resource(high.kind))
            .unwrap_or(Resource::Cpu);
        let about_to = proposals.iter().any(|proposal| {
            proposal.reservation.is_some()
                && proposal
                    .decision
                    .actor()
                    .is_some_and(|actor| unit.actors.binary_search(actor).is_ok())
        });
        let reserved = self
            .reservations
            .iter()
            .any(|reservation| unit.actors.binary_search(&reservation.actor).is_ok());
        let pinned = match unit.held {
            Some(Held::Pinned(_, priority)) => Some(priority),
            _ => None,
        };
        Some(End {
            actor: mine.clone(),
            node: self.expected_place(now, mine, proposals),
            used: unit.used[resource],
            pinned,
            reserved: reserved || about_to,
            recent: matches!(self.held(unit, now), Some(Held::Recent(_))),
        })
    }

    /// Answers another server's request.
    pub(super) fn receive_settle(&mut self, now: Time, from: NodeId, settle: Settle, out: &mut Vec<LemCommand>) {
        let number = settle.settle;
        let answer = self.answer_settle(now, settle, out);
        out.push(LemCommand::Send {
            to: from,
            message: ControlMessage::SettleReply(SettleReply { settle: number, answer }),
        });
    }

    fn answer_settle(&mut self, now: Time, settle: Settle, out: &mut Vec<LemCommand>) -> SettleAnswer {
        let no_proposals = Vec::new();
        let proposals = self.round.as_ref().map_or(&no_proposals, |round| &round.proposals);
        let Some(own) = self.end(now, &settle.other, &settle.mine.actor, proposals) else {
            return SettleAnswer::Refuse(Refusal::NotHere);
        };
        if own.node == settle.mine.node {
            return SettleAnswer::Stay;
        }
        if let Some(weaker) = self.weaker_pinned_partners(&settle) {
            // Among several pinned partners, the one with most calls wins.
            for pair in weaker {
                self.relations.give_up(pair);
            }
            self.rebuild_units();
            return self.answer_settle(now, settle, out);
        }
        match choose_mover(&settle.mine, &own, settle.priority) {
            Err(refusal) => SettleAnswer::Refuse(refusal),
            Ok(Mover::First) => SettleAnswer::Come(own.node),
            Ok(Mover::Second) => {
                let proposal = self.colocation(now, &settle, own.actor, settle.mine.actor.clone(), settle.mine.node);
                self.propose(now, proposal, out);
                SettleAnswer::Stay
            }
        }
    }

    /// The pairs that keep the actor beside pinned ones here, if it may leave them all. That requires more calls with a
    /// pinned partner on another server.
    fn weaker_pinned_partners(&self, settle: &Settle) -> Option<Vec<Pair>> {
        let asked = &settle.other;
        let unit = self.units.of(asked)?;
        if settle.mine.pinned.is_none() || self.relations.pinned(asked).is_some() {
            return None;
        }
        let mut weaker = Vec::new();
        for (own, _) in self.relations.pairs_together() {
            let partner = match own {
                (one, other) if one == asked => other,
                (one, other) if other == asked => one,
                _ => continue,
            };
            if unit.actors.binary_search(partner).is_err() || self.relations.pinned(partner).is_none() {
                continue;
            }
            let calls = self.calls_between(asked, partner) as f64;
            if settle.calls as f64 <= MORE_CALLS * calls {
                return None;
            }
            weaker.push(own.clone());
        }
        (!weaker.is_empty()).then_some(weaker)
    }

    /// Handles the reply of the other end's host.
    pub(super) fn receive_settle_reply(&mut self, now: Time, reply: SettleReply, out: &mut Vec<LemCommand>) {
        let Some(Round {
            phase: Phase::Settling(open),
            ..
        }) = &mut self.round
        else {
            return;
        };
        let Some(OpenSettle { settle }) = open.remove(&reply.settle) else {
            return;
        };
        let was_last = open.is_empty();
        match reply.answer {
            SettleAnswer::Stay => {}
            SettleAnswer::Come(node) => {
                let (mine, other) = (settle.mine.actor.clone(), settle.other.clone());
                let proposal = self.colocation(now, &settle, mine, other, node);
                self.propose(now, proposal, out);
            }
            SettleAnswer::Refuse(refusal) => self.refuse_settle(now, OpenSettle { settle }, refusal, out),
        }
        if was_last && let Some(round) = self.round.take() {
            self.resolve(now, round.proposals, out);
        }
    }

    /// Records that neither end of a pair moves.
    pub(super) fn refuse_settle(&mut self, now: Time, open: OpenSettle, refusal: Refusal, out: &mut Vec<LemCommand>) {
        let settle = open.settle;
        let change = Change::Move {
            actor: settle.mine.actor,
            with: Vec::new(),
            from: self.node,
            to: None,
            purpose: Purpose::Colocate(settle.other),
        };
        let decision = self.decision(now, Some(settle.cause), change, Vec::new());
        out.push(LemCommand::record(decision.with_outcome(Outcome::Refused(refusal))));
    }

    fn colocation(&mut self, now: Time, settle: &Settle, actor: ActorId, beside: ActorId, to: NodeId) -> Proposal {
        let change = Change::Move {
            actor,
            with: Vec::new(),
            from: self.node,
            to: Some(to),
            purpose: Purpose::Colocate(beside),
        };
        let decision = self.decision(now, Some(settle.cause.clone()), change, Vec::new());
        Proposal {
            decision,
            priority: settle.priority,
            // Among several partners, the one with most calls wins.
            score: settle.calls as f64,
            reservation: None,
        }
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
