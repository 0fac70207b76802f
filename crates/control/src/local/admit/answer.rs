//! The target's side of an admission: whether this server accepts actors from another.

use elastin_types::{ActorId, NodeId, Resource, Time};

use crate::context::Context;
use crate::limits::{asked_for, balance_limit, capacity, separation_priority};
use crate::local::LemCommand;
use crate::local::server::OwnServer;
use crate::settings::{PROMISE_PERIODS, part};
use crate::{ControlMessage, Query, QueryReply, Refusal};

/// Maximum number of deferred queries.
const WAITING_MAX: usize = 256;

/// The queries that are deferred until an actor on its way here is promised a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    waiting: Vec<WaitingQuery>,
}

/// A query for actors that go beside one which is not here yet. The query for that actor may arrive shortly after,
/// because another server sends it.
#[derive(Clone, Debug)]
struct WaitingQuery {
    from: NodeId,
    query: Query,
    until: Time,
}

impl Admission {
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Handles another server's query.
    pub(crate) fn receive_query(
        &mut self,
        context: &Context,
        server: &mut OwnServer,
        from: NodeId,
        query: Query,
        out: &mut Vec<LemCommand>,
    ) {
        if is_too_early(server, &query) && self.waiting.len() < WAITING_MAX {
            // Half of the requester's timeout, so that the reply still reaches it in time.
            let until = context.deadline(2 * part::QUERY);
            self.waiting.push(WaitingQuery { from, query, until });
            return;
        }
        self.answer(context, server, from, query, out);
    }

    fn answer(
        &mut self,
        context: &Context,
        server: &mut OwnServer,
        from: NodeId,
        query: Query,
        out: &mut Vec<LemCommand>,
    ) {
        let refused = refusal(context, server, &query);
        let is_refused = refused.is_some();
        let reply = QueryReply {
            query: query.query,
            refused,
        };
        out.push(LemCommand::send(from, ControlMessage::QueryReply(reply)));
        if is_refused {
            return;
        }
        let expires = context.after_periods(PROMISE_PERIODS);
        server.promises.make(expires, from, &query);
        if let Some(reservation) = query.reservation {
            server.reservations.add(reservation, expires);
        }
        let goes_beside = |waiting: &mut WaitingQuery| {
            let beside = waiting.query.beside.as_ref();
            beside.is_none_or(|beside| query.actors.contains(beside))
        };
        let ready: Vec<WaitingQuery> = self.waiting.extract_if(.., goes_beside).collect();
        for waiting in ready {
            self.answer(context, server, waiting.from, waiting.query, out);
        }
    }

    /// Answers deferred queries that cannot wait any longer.
    pub(crate) fn expire(&mut self, context: &Context, server: &mut OwnServer, out: &mut Vec<LemCommand>) {
        let late: Vec<WaitingQuery> = self
            .waiting
            .extract_if(.., |waiting| waiting.until <= context.now)
            .collect();
        for waiting in late {
            self.answer(context, server, waiting.from, waiting.query, out);
        }
    }

    /// Withdraws the promise: the actors will not arrive.
    pub(crate) fn receive_withdraw(&mut self, server: &mut OwnServer, from: NodeId, query: u64) {
        for actor in server.promises.withdraw(from, query) {
            let reservation = server.reservations.get(&actor);
            if reservation.is_some_and(|reservation| !reservation.arrived) {
                server.reservations.remove(&actor);
            }
        }
        self.waiting
            .retain(|waiting| waiting.from != from || waiting.query.query != query);
    }
}

/// Whether the actors go beside one that is not expected here yet.
fn is_too_early(server: &OwnServer, query: &Query) -> bool {
    let beside = query.beside.as_ref();
    beside.is_some_and(|beside| !server.expects(beside))
}

/// Why this server refuses the actors; `None` if it accepts them.
fn refusal(context: &Context, server: &OwnServer, query: &Query) -> Option<Refusal> {
    if server.is_draining(context) {
        return Some(Refusal::Draining);
    }
    if !server.promises.has_space() {
        return Some(Refusal::EnoughMoves);
    }
    if is_too_early(server, query) {
        return Some(Refusal::NotHere);
    }
    refusal_by_reservation(context, server, query)
        .or_else(|| refusal_by_separation(context, server, query))
        .or_else(|| refusal_by_room(context, server, query))
}

fn refusal_by_reservation(context: &Context, server: &OwnServer, query: &Query) -> Option<Refusal> {
    let Some(dedicated) = server.reservations.iter().next() else {
        // A server is dedicated only when no other actor is on it or on its way to it.
        let wants_alone = query.reservation.is_some() && !query.must_leave;
        return (wants_alone && !server.is_empty(context)).then_some(Refusal::AwaitingRoom);
    };
    let is_reserved_here = |actor: &ActorId| {
        server.reservations.iter().any(|reservation| {
            let unit = || server.units.of(&reservation.actor);
            reservation.actor == *actor || unit().is_some_and(|unit| unit.actors.contains(actor))
        })
    };
    let comes_along = |beside: &ActorId| is_reserved_here(beside) || server.promises.covers(beside);
    let shares_with = query.reservation.as_ref().and_then(|own| own.shares_with.as_ref());
    let belongs = query.actors.iter().any(is_reserved_here)
        || query.beside.as_ref().is_some_and(comes_along)
        || shares_with.is_some_and(is_reserved_here);
    (!belongs).then(|| Refusal::ServerReserved(dedicated.actor.clone()))
}

fn refusal_by_separation(context: &Context, server: &OwnServer, query: &Query) -> Option<Refusal> {
    let outranked = separation_priority(&context.policy).is_none_or(|separate| query.priority > separate);
    if query.must_leave || outranked {
        return None;
    }
    let own = query.actors.iter().flat_map(|actor| server.relations.apart_from(actor));
    if let Some(other) = query.apart_from.iter().chain(own).find(|other| server.expects(other)) {
        return Some(Refusal::KeptApart(other.clone()));
    }
    let by_type = query
        .actors
        .iter()
        .any(|actor| server.is_kept_apart(context, actor.kind));
    by_type.then_some(Refusal::KeptApartFromType)
}

fn refusal_by_room(context: &Context, server: &OwnServer, query: &Query) -> Option<Refusal> {
    let stats = server.stats(context)?;
    let promised = server.promises.used();
    let is_first = server.is_empty(context);
    Resource::ALL.into_iter().find_map(|resource| {
        // Actors that exceed the limit on any server may have an otherwise empty one.
        if is_first && resource != Resource::Mem {
            return None;
        }
        let limit = limit(context, server, resource, query)?;
        let coming = query.used[resource];
        let expected = asked_for(&stats, resource) + promised[resource] + coming;
        let percent = 100.0 * expected / capacity(&stats, resource)?;
        (coming > 0.0 && percent > limit).then_some(Refusal::NoRoom {
            resource,
            percent,
            limit,
        })
    })
}

/// The limit for a resource once the actors have arrived, in percent; `None` if unlimited.
fn limit(context: &Context, server: &OwnServer, resource: Resource, query: &Query) -> Option<f64> {
    // A saturated processor or network slows actors down, but memory cannot be exceeded.
    let whole = (resource == Resource::Mem).then_some(100.0);
    if query.must_leave || query.reservation.is_some() || !server.reservations.is_empty() {
        return whole;
    }
    match balance_limit(&context.policy, resource) {
        Some((limit, priority)) if query.priority <= priority => Some(limit),
        _ if query.beside.is_some() => whole,
        _ => Some(100.0),
    }
}
