//! A round. Once per period, a local manager collects all proposals for its actors, arbitrates among them per unit, and
//! queries the targets.

use std::collections::{BTreeMap, BTreeSet};

use elastin_policy::Fired;
use elastin_types::{ActorId, NodeId, ServerState, Time};

use super::Lem;
use super::colocate_agreement::OpenSettle;
use super::event::LemCommand;
use crate::arbitrate::{best_first, is_better};
use crate::settings::{PROMISE_PERIODS, part};
use crate::{
    Change, ControlMessage, Held, Outcome, Proposal, Purpose, Query, QueryReply, Refusal, ReportReply, Reservation,
    Unit,
};

/// Number of servers that a manager remembers from a reply.
const KNOWN_MAX: usize = 1_024;

/// Maximum number of proposals per round. A global manager sends fewer; omitted ones are proposed again.
const PROPOSALS_MAX: usize = 4_096;

/// Periods for which a server requested by one global manager is not requested again by another. With several managers,
/// it takes some periods until the old and the new server report to the same one.
const AWAITING_PERIODS: u32 = 12;

/// A round that collects proposals.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) phase: Phase,
    /// Deadline of the current phase.
    pub(crate) until: Time,
    pub(crate) proposals: Vec<Proposal>,
}

/// The replies that a round is waiting for.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The global manager's reply to the report.
    Reporting {
        /// The global manager.
        global: NodeId,
    },
    /// The replies of the hosts of related actors, by request number.
    Settling(BTreeMap<u64, OpenSettle>),
}

/// A query that the target has not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenQuery {
    pub(crate) proposal: Proposal,
    pub(crate) actors: Vec<ActorId>,
    pub(crate) to: NodeId,
    pub(crate) until: Time,
}

impl Lem {
    /// Starts the period's round with a report to a randomly chosen global manager.
    pub(super) fn start_round(&mut self, now: Time, fired: &[Fired], out: &mut Vec<LemCommand>) {
        if let Some(unfinished) = self.round.take() {
            // The timeouts of a round's steps add up to less than a period, but a period may be cut short.
            self.resolve(now, unfinished.proposals, out);
        }
        self.rounds += 1;
        let globals: Vec<NodeId> = self
            .members
            .iter()
            .filter(|member| member.global)
            .map(|member| member.node)
            .collect();
        let picked = self.random.pick(&globals).copied();
        let (Some(global), Some(report)) = (picked, self.report(now, fired)) else {
            return self.start_settling(now, Vec::new(), out);
        };
        self.round = Some(Round {
            phase: Phase::Reporting { global },
            until: now + self.settings.limit(part::REPORT),
            proposals: Vec::new(),
        });
        out.push(LemCommand::Send {
            to: global,
            message: ControlMessage::Report(Box::new(report)),
        });
    }

    /// Handles the global manager's reply.
    pub(super) fn receive_reply(&mut self, now: Time, from: NodeId, reply: ReportReply, out: &mut Vec<LemCommand>) {
        let expected = self.round.as_ref().is_some_and(|round| match &round.phase {
            Phase::Reporting { global } => *global == from,
            Phase::Settling(_) => false,
        });
        // A late reply is based on an earlier period; its moves are proposed again if still needed.
        if !expected || reply.round != self.rounds {
            return;
        }
        self.last_global = Some(from);
        self.known = reply.servers;
        self.known.truncate(KNOWN_MAX);
        self.placing.placed.clear();
        self.added_for_reserve |= reply.added_for_reserve;
        self.awaiting.retain(|_, until| *until > now);
        for actor in reply.awaiting {
            self.awaiting
                .entry(actor)
                .or_insert(now + self.settings.period * AWAITING_PERIODS);
        }
        let awaited_until = now + self.settings.period * PROMISE_PERIODS;
        for reservation in reply.dedicate {
            self.reservations.add(reservation, awaited_until);
        }
        // Other servers may have proposed moves in the meantime.
        let mut proposals = self.round.take().map(|round| round.proposals).unwrap_or_default();
        proposals.extend(reply.proposals);
        self.start_settling(now, proposals, out);
    }

    /// Proceeds when the awaited replies do not arrive in time.
    pub(super) fn expire_round(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        let Some(round) = self.round.take_if(|round| round.until <= now) else {
            return;
        };
        match round.phase {
            Phase::Reporting { .. } => self.start_settling(now, round.proposals, out),
            Phase::Settling(open) => {
                for settle in open.into_values() {
                    self.refuse_settle(now, settle, Refusal::HostUnknown, out);
                }
                self.resolve(now, round.proposals, out);
            }
        }
    }

    /// Adds a proposal from outside the reply to the round, or resolves it alone if no round is open.
    pub(super) fn propose(&mut self, now: Time, proposal: Proposal, out: &mut Vec<LemCommand>) {
        match &mut self.round {
            Some(round) if round.proposals.len() < PROPOSALS_MAX => round.proposals.push(proposal),
            _ => self.resolve(now, vec![proposal], out),
        }
    }

    /// The server that an actor will be on, given the proposals so far.
    pub(super) fn expected_place(&self, now: Time, actor: &ActorId, proposals: &[Proposal]) -> NodeId {
        let Some(unit) = self.units.of(actor) else {
            return self.node;
        };
        let mut best: Option<&Proposal> = None;
        for proposal in proposals {
            let concerns = proposal
                .decision
                .actor()
                .is_some_and(|moved| unit.actors.contains(moved));
            if concerns
                && self.objection(now, proposal, unit).is_none()
                && best.is_none_or(|best| is_better(proposal, best))
            {
                best = Some(proposal);
            }
        }
        let target = best.and_then(|proposal| match &proposal.decision.change {
            Change::Move { to, .. } => *to,
            _ => None,
        });
        target.unwrap_or(self.node)
    }

    /// Arbitration: selects one proposal per unit and queries its target.
    pub(super) fn resolve(&mut self, now: Time, mut proposals: Vec<Proposal>, out: &mut Vec<LemCommand>) {
        proposals.truncate(PROPOSALS_MAX);
        best_first(&mut proposals);
        let mut taken: BTreeSet<ActorId> = BTreeSet::new();
        for proposal in proposals {
            let Some((actor, to)) = moved(&proposal) else {
                out.push(LemCommand::record(proposal.decision));
                continue;
            };
            let Some(unit) = self.units.of(&actor).cloned() else {
                refuse(proposal, Refusal::NotHere, out);
                continue;
            };
            let drains = is_drain(&proposal);
            let refusal = if taken.contains(&unit.lead) {
                Some(Refusal::Outranked)
            } else if !drains && self.is_past_moves_max(&unit) {
                Some(Refusal::EnoughMoves)
            } else {
                self.objection(now, &proposal, &unit)
            };
            match refusal {
                Some(refusal) => refuse(proposal, refusal, out),
                None => {
                    taken.insert(unit.lead.clone());
                    self.ask_target(now, proposal, unit, to, out);
                }
            }
        }
    }

    /// Why this server does not let a unit move for a proposal.
    fn objection(&self, now: Time, proposal: &Proposal, unit: &Unit) -> Option<Refusal> {
        if unit.actors.iter().any(|actor| self.is_on_the_move(actor)) {
            return Some(Refusal::OnTheMove);
        }
        if is_drain(proposal) {
            return None;
        }
        match &self.held(unit, now) {
            Some(Held::Pinned(actor, priority)) if *priority >= proposal.priority => {
                return Some(Refusal::Pinned(actor.clone()));
            }
            Some(Held::Recent(_)) => return Some(Refusal::CameRecently),
            _ => {}
        }
        let for_reserve = proposal.reservation.is_some();
        let reserved = self.reservations.iter().find(|reservation| {
            reservation.arrived && unit.actors.binary_search(&reservation.actor).is_ok() && !for_reserve
        });
        reserved.map(|reservation| Refusal::Reserved(reservation.actor.clone()))
    }

    fn is_past_moves_max(&self, unit: &Unit) -> bool {
        let asked: usize = self.queries.values().map(|open| open.actors.len()).sum();
        let under_way = self.moves.len() + asked;
        // A unit larger than the limit may still move, alone.
        under_way > 0 && under_way + unit.actors.len() > self.settings.moves_max
    }

    /// Admission: asks the target whether it accepts the unit.
    fn ask_target(&mut self, now: Time, mut proposal: Proposal, unit: Unit, to: NodeId, out: &mut Vec<LemCommand>) {
        let Change::Move {
            actor, with, purpose, ..
        } = &mut proposal.decision.change
        else {
            unreachable!("only moves are admitted");
        };
        *with = unit.actors.iter().filter(|other| *other != actor).cloned().collect();
        let must_leave = matches!(purpose, Purpose::Drain | Purpose::MakeRoom { .. });
        let beside = match purpose {
            Purpose::Colocate(other) => Some(other.clone()),
            _ => None,
        };
        // A reserved actor keeps its reservation, whatever the purpose of the move.
        let carried = self
            .reservations
            .iter()
            .find(|reservation| unit.actors.binary_search(&reservation.actor).is_ok());
        let reservation = proposal.reservation.clone().or_else(|| carried.cloned());
        let query = Query {
            query: self.number(),
            actors: unit.actors.clone(),
            used: unit.used,
            priority: proposal.priority,
            must_leave,
            beside,
            apart_from: unit.apart_from,
            reservation: reservation.map(|reservation| Reservation {
                arrived: false,
                ..reservation
            }),
        };
        out.push(LemCommand::record(proposal.decision.clone()));
        let open = OpenQuery {
            proposal,
            actors: unit.actors,
            to,
            until: now + self.settings.limit(part::QUERY),
        };
        self.queries.insert(query.query, open);
        out.push(LemCommand::Send {
            to,
            message: ControlMessage::Query(Box::new(query)),
        });
    }

    /// Handles the target's reply.
    pub(super) fn receive_query_reply(
        &mut self,
        now: Time,
        from: NodeId,
        reply: QueryReply,
        out: &mut Vec<LemCommand>,
    ) {
        let Some(open) = self.queries.get(&reply.query).filter(|open| open.to == from) else {
            return;
        };
        let (to, actors) = (open.to, open.actors.clone());
        let open = self.queries.remove(&reply.query).expect("the query was found above");
        match reply.refused {
            None => self.start_moves(now, reply.query, open.proposal, actors, to, out),
            Some(refusal) => {
                for actor in actors {
                    self.refused.entry(actor).or_default().insert(to);
                }
                refuse(open.proposal, refusal, out);
            }
        }
    }

    /// Fails queries that timed out. The target may have made a promise, so it is withdrawn.
    pub(super) fn expire_queries(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        let late: Vec<u64> = self
            .queries
            .iter()
            .filter(|(_, open)| open.until <= now)
            .map(|(query, _)| *query)
            .collect();
        for query in late {
            let open = self.queries.remove(&query).expect("the query was taken from the map");
            out.push(LemCommand::Send {
                to: open.to,
                message: ControlMessage::Withdraw { query },
            });
            refuse(open.proposal, Refusal::NoAnswer(open.to), out);
        }
    }

    /// Whether this server moves its actors away regardless of rules.
    pub(super) fn is_draining(&self) -> bool {
        self.state() == ServerState::Draining
    }
}

fn moved(proposal: &Proposal) -> Option<(ActorId, NodeId)> {
    match &proposal.decision.change {
        Change::Move {
            actor, to: Some(to), ..
        } => Some((actor.clone(), *to)),
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

fn refuse(proposal: Proposal, refusal: Refusal, out: &mut Vec<LemCommand>) {
    out.push(LemCommand::record(
        proposal.decision.with_outcome(Outcome::Refused(refusal)),
    ));
}
