//! Admission: whether this server accepts actors from another.

use elastin_types::{ActorId, NodeId, Resource, ServerState, Time};

use super::Lem;
use super::event::LemCommand;
use crate::limits::{asked_for, balance_limit, separation_priority};
use crate::settings::{PROMISE_PERIODS, part};
use crate::{ControlMessage, Query, QueryReply, Refusal};

/// Maximum number of deferred queries.
const WAITING_MAX: usize = 256;

/// A deferred query for actors that go beside one which is not here yet. The query for that actor may arrive shortly
/// after, because another server sends it.
#[derive(Clone, Debug)]
pub(crate) struct WaitingQuery {
    from: NodeId,
    query: Query,
    pub(crate) until: Time,
}

impl Lem {
    /// Handles another server's query.
    pub(super) fn receive_query(&mut self, now: Time, from: NodeId, query: Query, out: &mut Vec<LemCommand>) {
        let waits = query
            .beside
            .as_ref()
            .is_some_and(|beside| !self.is_expected_here(beside));
        if waits && self.waiting.len() < WAITING_MAX {
            // Half of the requester's timeout, so that the reply still reaches it in time.
            let until = now + self.settings.limit(part::QUERY) / 2;
            self.waiting.push(WaitingQuery { from, query, until });
            return;
        }
        self.answer_query(now, from, query, out);
    }

    fn answer_query(&mut self, now: Time, from: NodeId, query: Query, out: &mut Vec<LemCommand>) {
        let refused = self.refusal(&query);
        out.push(LemCommand::Send {
            to: from,
            message: ControlMessage::QueryReply(QueryReply {
                query: query.query,
                refused: refused.clone(),
            }),
        });
        if refused.is_some() {
            return;
        }
        self.promises.make(now, self.settings.period, from, &query);
        if let Some(reservation) = query.reservation {
            let awaited_until = now + self.settings.period * PROMISE_PERIODS;
            self.reservations.add(reservation, awaited_until);
        }
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(|waiting| {
            let beside = waiting.query.beside.as_ref();
            beside.is_none_or(|beside| query.actors.contains(beside))
        });
        self.waiting = waiting;
        for waiting in ready {
            self.answer_query(now, waiting.from, waiting.query, out);
        }
    }

    pub(super) fn expire_waiting(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        let (late, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.until <= now);
        self.waiting = waiting;
        for waiting in late {
            self.answer_query(now, waiting.from, waiting.query, out);
        }
    }

    /// Withdraws the promise: the actors will not arrive.
    pub(super) fn receive_withdraw(&mut self, from: NodeId, query: u64) {
        for actor in self.promises.withdraw(from, query) {
            let awaited = self
                .reservations
                .get(&actor)
                .is_some_and(|reservation| !reservation.arrived);
            if awaited {
                self.reservations.remove(&actor);
            }
        }
        self.waiting
            .retain(|waiting| waiting.from != from || waiting.query.query != query);
    }

    fn is_expected_here(&self, actor: &ActorId) -> bool {
        self.units.contains(actor) || self.promises.covers(actor)
    }

    /// Why this server refuses the actors; `None` if it accepts them.
    fn refusal(&self, query: &Query) -> Option<Refusal> {
        if self.state() == ServerState::Draining {
            return Some(Refusal::Draining);
        }
        if !self.promises.has_space() {
            return Some(Refusal::EnoughMoves);
        }
        if query
            .beside
            .as_ref()
            .is_some_and(|beside| !self.is_expected_here(beside))
        {
            return Some(Refusal::NotHere);
        }
        self.refusal_by_reservation(query)
            .or_else(|| self.refusal_by_separation(query))
            .or_else(|| self.refusal_by_room(query))
    }

    fn refusal_by_reservation(&self, query: &Query) -> Option<Refusal> {
        let Some(dedicated) = self.reservations.iter().next() else {
            // A server is dedicated only when no other actor is on it or on its way to it.
            let server = self.own_server();
            let empty = server.is_some_and(|server| server.actors == 0) && self.promises.is_empty();
            let wants_alone = query.reservation.is_some() && !query.must_leave;
            return (wants_alone && !empty).then_some(Refusal::AwaitingRoom);
        };
        let is_reserved_here = |actor: &ActorId| {
            let with_reserved = |reserved: &ActorId| {
                reserved == actor || self.units.of(reserved).is_some_and(|unit| unit.actors.contains(actor))
            };
            self.reservations
                .iter()
                .any(|reservation| with_reserved(&reservation.actor))
        };
        let comes_along = query
            .beside
            .as_ref()
            .is_some_and(|beside| is_reserved_here(beside) || self.promises.covers(beside));
        let shares = query
            .reservation
            .as_ref()
            .and_then(|reservation| reservation.shares_with.as_ref())
            .is_some_and(&is_reserved_here);
        let belongs = query.actors.iter().any(is_reserved_here) || comes_along || shares;
        (!belongs).then(|| Refusal::ServerReserved(dedicated.actor.clone()))
    }

    fn refusal_by_separation(&self, query: &Query) -> Option<Refusal> {
        let outranked = separation_priority(&self.policy).is_none_or(|separate| query.priority > separate);
        if query.must_leave || outranked {
            return None;
        }
        let separated = query.apart_from.iter().find(|other| self.is_expected_here(other));
        let own = || {
            query
                .actors
                .iter()
                .flat_map(|actor| self.relations.apart_from(actor))
                .find(|other| self.is_expected_here(other))
        };
        if let Some(other) = separated.or_else(own) {
            return Some(Refusal::KeptApart(other.clone()));
        }
        let by_type = query.actors.iter().any(|actor| self.is_kept_apart_here(actor.kind));
        by_type.then_some(Refusal::KeptApartFromType)
    }

    fn refusal_by_room(&self, query: &Query) -> Option<Refusal> {
        let server = self.own_server()?;
        let promised = self.promises.used();
        let is_first = server.actors == 0 && self.promises.is_empty();
        Resource::ALL.into_iter().find_map(|resource| {
            // Actors that exceed the limit on any server may have an otherwise empty one.
            if is_first && resource != Resource::Mem {
                return None;
            }
            let limit = self.limit(resource, query)?;
            let capacity = server.usage[resource].capacity.filter(|capacity| *capacity > 0.0)?;
            let coming = query.used[resource];
            let percent = 100.0 * (asked_for(&server, resource) + promised[resource] + coming) / capacity;
            (coming > 0.0 && percent > limit).then_some(Refusal::NoRoom {
                resource,
                percent,
                limit,
            })
        })
    }

    /// The limit for a resource once the actors have arrived, in percent; `None` if unlimited.
    fn limit(&self, resource: Resource, query: &Query) -> Option<f64> {
        // A saturated processor or network slows actors down, but memory cannot be exceeded.
        let whole = match resource {
            Resource::Mem => Some(100.0),
            Resource::Cpu | Resource::Net => None,
        };
        if query.must_leave || query.reservation.is_some() || !self.reservations.is_empty() {
            return whole;
        }
        match balance_limit(&self.policy, resource) {
            Some((limit, priority)) if query.priority <= priority => Some(limit),
            _ if query.beside.is_some() => whole,
            _ => Some(100.0),
        }
    }
}
