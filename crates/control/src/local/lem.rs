//! The local manager: dispatch of events to the steps of a decision.

use std::sync::Arc;
use std::time::Duration;

use elastin_policy::Policy;
use elastin_types::{NodeId, Snapshot, Time};

use super::admit::{Admission, Queries};
use super::arbitrate::arbitrate;
use super::event::{LemCommand, LemEvent};
use super::execute::Moves;
use super::placement::Placing;
use super::propose::{OversizedUnits, Reporting, Round, evaluate};
use super::server::OwnServer;
use crate::context::Context;
use crate::{Config, ControlMessage, Manager, Member, NewActor, Placement, Proposal};

/// The elasticity manager of one server. A pure state machine: [`Lem::handle`] takes an event and appends commands.
#[derive(Clone, Debug)]
pub struct Lem {
    context: Context,
    server: OwnServer,
    oversized: OversizedUnits,
    reporting: Reporting,
    round: Round,
    queries: Queries,
    admission: Admission,
    moves: Moves,
    placing: Placing,
}

impl Lem {
    /// A local manager without statistics of its server.
    pub fn new(config: Config) -> Self {
        Self {
            context: Context::new(Manager::Local(config.node), config),
            server: OwnServer::default(),
            oversized: OversizedUnits::default(),
            reporting: Reporting::default(),
            round: Round::default(),
            queries: Queries::default(),
            admission: Admission::default(),
            moves: Moves::default(),
            placing: Placing::default(),
        }
    }

    /// Handles an event and appends the resulting commands. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: LemEvent, out: &mut Vec<LemCommand>) {
        self.context.now = now;
        self.expire(out);
        match event {
            LemEvent::Period(snapshot) => self.end_period(snapshot, out),
            LemEvent::Message { from, message } => self.receive(from, message, out),
            LemEvent::MoveEnded { id, result } => self.moves.end(&self.context, &mut self.server, id, result, out),
            LemEvent::Members(members) => self.change_members(members),
            LemEvent::PolicyChanged(policy) => self.change_policy(policy),
            LemEvent::Place { request, new } => {
                let (context, reporting) = (&mut self.context, &self.reporting);
                self.placing.ask(context, &self.server, reporting, request, new, out);
            }
            LemEvent::Tick => {}
        }
    }

    /// When a [`LemEvent::Tick`] is due, if no other event arrives before.
    pub fn next_timer(&self) -> Option<Time> {
        let timers = [
            self.round.next_timer(),
            self.queries.next_timer(),
            self.admission.next_timer(),
            self.placing.next_timer(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Whether the next snapshot must list all actors of the server, not only those that the policy is interested in.
    /// That is the case while the server is drained, or dedicated to some actors so that the others have to leave.
    pub fn wants_all_actors(&self) -> bool {
        self.server.is_draining(&self.context) || !self.server.reservations.is_empty()
    }

    /// The elasticity period in force, the interval of [`LemEvent::Period`].
    pub fn period(&self) -> Duration {
        self.context.settings.period
    }

    /// Places a new actor with local knowledge only; `None` if no server that accepts actors is known.
    pub fn place(&mut self, new: &NewActor) -> Option<Placement> {
        self.placing
            .place(&mut self.context, &self.server, &self.reporting, new)
    }

    /// Stores the statistics of a period, applies the rules to them and starts the period's round.
    fn end_period(&mut self, snapshot: Snapshot, out: &mut Vec<LemCommand>) {
        let (context, server) = (&mut self.context, &mut self.server);
        self.moves.end_lost(context, server, out);
        server.start_period(context, snapshot);
        let fired = evaluate(context, server, out);
        server.rebuild_units(context);
        self.oversized.split(context, server, self.reporting.known(), out);
        self.reporting.count_period(context, server);
        if server.has_drained(context) {
            out.push(LemCommand::Leave);
        }
        // The timeouts of a round's steps add up to less than a period, but a period may be cut short.
        let unfinished = self.round.take();
        self.arbitrate(unfinished, out);
        let (context, server) = (&mut self.context, &self.server);
        let ready = self.round.start(context, server, &mut self.reporting, &fired, out);
        self.arbitrate(ready, out);
    }

    fn receive(&mut self, from: NodeId, message: ControlMessage, out: &mut Vec<LemCommand>) {
        let (context, server) = (&mut self.context, &mut self.server);
        match message {
            ControlMessage::ReportReply(reply) => {
                if self.round.expects(from)
                    && let Some(proposals) = self.reporting.receive(context, server, from, *reply)
                {
                    self.placing.forget_placed();
                    let known = self.reporting.known();
                    let ready = self.round.receive_reply(context, server, known, proposals, out);
                    self.arbitrate(ready, out);
                }
            }
            ControlMessage::Settle(settle) => {
                let (reply, ready) = self.round.receive_settle(context, server, *settle);
                self.arbitrate(ready, out);
                out.push(LemCommand::send(from, ControlMessage::SettleReply(reply)));
            }
            ControlMessage::SettleReply(reply) => {
                let ready = self.round.receive_settle_reply(context, reply, out);
                self.arbitrate(ready, out);
                let ready = self.round.take_if_settled();
                self.arbitrate(ready, out);
            }
            ControlMessage::Query(query) => self.admission.receive_query(context, server, from, *query, out),
            ControlMessage::QueryReply(reply) => {
                let number = reply.query;
                if let Some(admitted) = self.queries.receive_reply(server, from, reply, out) {
                    self.moves.start(context, number, admitted, out);
                }
            }
            ControlMessage::Withdraw { query } => self.admission.receive_withdraw(server, from, query),
            ControlMessage::Placed { request, placement } => {
                let reporting = &self.reporting;
                self.placing
                    .receive(context, server, reporting, request, placement, out);
            }
            // Messages for global managers: a misrouted one is dropped, and its sender times out.
            ControlMessage::Report(_)
            | ControlMessage::Adjustment(_)
            | ControlMessage::Vote(_)
            | ControlMessage::Place { .. } => {}
        }
    }

    fn arbitrate(&mut self, proposals: Vec<Proposal>, out: &mut Vec<LemCommand>) {
        arbitrate(&mut self.context, &mut self.server, &mut self.queries, proposals, out);
    }

    fn expire(&mut self, out: &mut Vec<LemCommand>) {
        let (context, server) = (&mut self.context, &mut self.server);
        self.queries.expire(context, server, out);
        self.admission.expire(context, server, out);
        self.placing.expire(context, server, &self.reporting, out);
        let ready = self.round.expire(context, server, self.reporting.known(), out);
        self.arbitrate(ready, out);
    }

    fn change_members(&mut self, members: Vec<Member>) {
        self.context.members = members;
        self.reporting.forget_lost(&self.context);
    }

    fn change_policy(&mut self, policy: Arc<Policy>) {
        self.context.change_policy(policy);
        self.server.forget_rules();
        self.reporting.forget_rules();
        self.round = Round::default();
    }
}
