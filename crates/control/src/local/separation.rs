//! `separate`: moves one of two actors that must not share this server to a server that can take it.

use elastin_policy::{Index, Variable};
use elastin_types::{ActorId, NodeId, Resource, ServerState, Time};

use super::Lem;
use crate::place::separates_kinds;
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

impl Lem {
    /// Proposes to separate all actors that must not share this server.
    pub(super) fn propose_separation(&mut self, now: Time, proposals: &mut Vec<Proposal>) {
        let separations: Vec<Separation> = self
            .pairs_to_separate(now)
            .into_iter()
            .chain(self.types_to_separate(now))
            .take(SEPARATIONS_MAX)
            .collect();
        // Servers chosen earlier in this round are fuller than their digests show, so later separations avoid them.
        let mut chosen = Vec::new();
        for separation in separations {
            let proposal = self.separation(now, separation, &chosen);
            if let Change::Move { to: Some(to), .. } = proposal.decision.change {
                chosen.push(to);
            }
            proposals.push(proposal);
        }
    }

    fn pairs_to_separate(&self, now: Time) -> Vec<Separation> {
        self.relations
            .apart
            .iter()
            .filter_map(|((one, other), relation)| {
                let (first, second) = (self.units.of(one)?, self.units.of(other)?);
                if first.lead == second.lead {
                    return None;
                }
                let (leaving, other) = if self.leaves_first(now, first, second, relation.priority) {
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
    fn types_to_separate(&self, now: Time) -> Vec<Separation> {
        let mut separations = Vec::new();
        let has_condition = |rule: &usize| !self.policy.rules()[*rule].condition.is_trivial();
        let conditional = self.policy.type_separations().any(|rule| has_condition(&rule));
        let facts = conditional.then(|| Index::new(&self.snapshot));
        for index in self.policy.type_separations() {
            let rule = &self.policy.rules()[index];
            let priority = rule.priority_of(&rule.behaviours[0]);
            let [first, second] = &rule.variables[..] else { continue };
            let (leaving, staying) = self.sides(now, first, second, priority);
            let holds = |unit: &Unit, other: &Unit| {
                // A unit with actors of both types is kept together by another rule. If a type is separated from
                // itself, the lowest unit stays.
                let apart = unit.lead != other.lead && (other.lead < unit.lead || !has_both(unit, first, second));
                apart && (!has_condition(&index) || self.rule_holds(facts.as_ref(), index, unit, other))
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

    /// The units of the leaving type and of the staying type. The type that is free to move leaves, then the one with
    /// less use.
    fn sides(&self, now: Time, first: &Variable, second: &Variable, priority: i32) -> (Vec<&Unit>, Vec<&Unit>) {
        let of = |variable: &Variable| -> Vec<&Unit> {
            let admitted = |unit: &&Unit| unit.actors.iter().any(|actor| variable.admits(actor.kind));
            self.units.iter().filter(admitted).take(SIDE_MAX).collect()
        };
        let weight = |units: &[&Unit]| {
            let held = |unit: &&&Unit| self.held(unit, now).is_some_and(|held| held.holds_against(priority));
            let stuck = units.iter().filter(held).count();
            let used: f64 = units.iter().map(|unit| unit.used.cpu).sum();
            (stuck, used)
        };
        let (ones, others) = (of(first), of(second));
        if weight(&ones) <= weight(&others) {
            (ones, others)
        } else {
            (others, ones)
        }
    }

    fn rule_holds(&self, facts: Option<&Index<'_>>, rule: usize, unit: &Unit, other: &Unit) -> bool {
        facts.is_some_and(|facts| self.policy.separates(facts, rule, &unit.lead, &other.lead))
    }

    /// Whether the first of two units is the one to leave: the one that is free to move, then the one with less use.
    fn leaves_first(&self, now: Time, first: &Unit, second: &Unit, priority: i32) -> bool {
        let held = |unit: &Unit| self.held(unit, now).is_some_and(|held| held.holds_against(priority));
        match (held(first), held(second)) {
            (true, false) => false,
            (false, true) => true,
            _ => first.used[Resource::Cpu] <= second.used[Resource::Cpu],
        }
    }

    fn separation(&mut self, now: Time, separation: Separation, chosen: &[NodeId]) -> Proposal {
        let mut candidates: Vec<Candidate> = match self.units.of(&separation.leaving) {
            Some(unit) => self
                .known
                .iter()
                .filter(|digest| digest.server.node != self.node)
                .map(|digest| self.candidate(unit, digest, chosen))
                .collect(),
            None => Vec::new(),
        };
        candidates.sort_by(|one, other| {
            (one.refused.is_some().cmp(&other.refused.is_some()))
                .then(other.score.total_cmp(&one.score))
                .then(one.node.cmp(&other.node))
        });
        let to = candidates
            .first()
            .filter(|best| best.refused.is_none())
            .map(|best| best.node);
        for worse in candidates.iter_mut().skip(1) {
            worse.refused.get_or_insert(Refusal::Worse);
        }
        let change = Change::Move {
            actor: separation.leaving,
            with: Vec::new(),
            from: self.node,
            to,
            purpose: Purpose::Separate(separation.other),
        };
        let mut decision = self.decision(now, Some(separation.cause), change, candidates);
        if to.is_none() {
            decision.outcome = Outcome::Refused(Refusal::NoServer);
        }
        Proposal {
            decision,
            priority: separation.priority,
            score: 0.0,
            reservation: None,
        }
    }

    /// A candidate server for a unit, scored by the room left after the move.
    fn candidate(&self, unit: &Unit, digest: &ServerDigest, chosen: &[NodeId]) -> Candidate {
        let server = &digest.server;
        let resource = self.policy.critical_resource(unit.lead.kind).unwrap_or(Resource::Cpu);
        let usage = server.usage[resource];
        let percent = usage
            .capacity
            .filter(|capacity| *capacity > 0.0)
            .map_or(0.0, |capacity| 100.0 * (usage.used + unit.used[resource]) / capacity);
        let kept_apart = unit.actors.iter().any(|actor| {
            let kinds = &digest.separated_kinds;
            kinds
                .iter()
                .any(|other| separates_kinds(&self.policy, actor.kind, *other))
        });
        let refused = if server.state == ServerState::Draining {
            Some(Refusal::Draining)
        } else if let Some(reserved) = digest.reserved.first() {
            Some(Refusal::ServerReserved(reserved.clone()))
        } else if unit.refused_by.contains(&server.node) {
            Some(Refusal::RefusedBefore)
        } else if kept_apart || chosen.contains(&server.node) {
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
}

/// Whether a unit has actors matching both variables of a rule.
fn has_both(unit: &Unit, first: &Variable, second: &Variable) -> bool {
    let admits = |variable: &Variable| unit.actors.iter().any(|actor| variable.admits(actor.kind));
    admits(first) && admits(second)
}
