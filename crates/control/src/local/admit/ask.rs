//! The source's side of an admission: queries to the targets of moves.

use std::collections::BTreeMap;

use elastin_types::{ActorId, NodeId, Time};

use crate::context::Context;
use crate::local::LemCommand;
use crate::local::server::OwnServer;
use crate::record::refuse;
use crate::settings::part;
use crate::{Change, ControlMessage, Proposal, Purpose, Query, QueryReply, Refusal, Reservation, Unit};

/// The queries that targets have not answered yet, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queries {
    open: BTreeMap<u64, OpenQuery>,
}

/// A query for a unit.
#[derive(Clone, Debug)]
pub(crate) struct OpenQuery {
    pub(crate) proposal: Proposal,
    pub(crate) actors: Vec<ActorId>,
    pub(crate) to: NodeId,
    until: Time,
}

impl Queries {
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.open.values().map(|open| open.until).min()
    }

    /// Asks the target whether it accepts the unit.
    pub(crate) fn ask(
        &mut self,
        context: &mut Context,
        server: &mut OwnServer,
        mut proposal: Proposal,
        unit: Unit,
        to: NodeId,
        out: &mut Vec<LemCommand>,
    ) {
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
        let carried = || server.reservations.in_unit(&unit).next().cloned();
        let reservation = proposal.reservation.clone().or_else(carried);
        let query = Query {
            query: context.number(),
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
        out.push(proposal.decision.clone().into());
        server.in_flight.extend(unit.actors.iter().cloned());
        let open = OpenQuery {
            proposal,
            actors: unit.actors,
            to,
            until: context.deadline(part::QUERY),
        };
        self.open.insert(query.query, open);
        out.push(LemCommand::send(to, ControlMessage::Query(Box::new(query))));
    }

    /// Handles the target's reply; returns the query if the target admits the unit.
    pub(crate) fn receive_reply(
        &mut self,
        server: &mut OwnServer,
        from: NodeId,
        reply: QueryReply,
        out: &mut Vec<LemCommand>,
    ) -> Option<OpenQuery> {
        self.open.get(&reply.query).filter(|open| open.to == from)?;
        let open = self.open.remove(&reply.query)?;
        let Some(refusal) = reply.refused else {
            return Some(open);
        };
        server.end_flight(&open.actors);
        server.remember_refusal(open.actors, from);
        refuse(open.proposal.decision, refusal, out);
        None
    }

    /// Fails queries that timed out. The target may have made a promise, so it is withdrawn.
    pub(crate) fn expire(&mut self, context: &Context, server: &mut OwnServer, out: &mut Vec<LemCommand>) {
        for (query, open) in self.open.extract_if(.., |_, open| open.until <= context.now) {
            server.end_flight(&open.actors);
            out.push(LemCommand::send(open.to, ControlMessage::Withdraw { query }));
            refuse(open.proposal.decision, Refusal::NoAnswer(open.to), out);
        }
    }
}
