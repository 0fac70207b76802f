//! The report to a global manager, bounded regardless of the number of actors.

use std::collections::BTreeSet;

use elastin_policy::{Action, Fired};
use elastin_types::{ActorId, ActorType, PerResource, Resource, ServerState, ServerStats, Time};

use super::Lem;
use crate::limits::asked_for;
use crate::place::separates_kinds;
use crate::{Cause, Held, Report, Rest, Unit, Wish};

/// Number of `reserve` requests in a report: those of the highest priority, then of the greatest use.
const RESERVE_REQUESTS_MAX: usize = 32;

/// Number of actors that a report lists per unit.
const UNIT_ACTORS_MAX: usize = 256;

impl Lem {
    /// The report of this period; `None` before the first statistics.
    pub(super) fn report(&self, now: Time, fired: &[Fired]) -> Option<Report> {
        let server = self.own_server()?;
        let mut units: Vec<&Unit> = self.units.iter().filter(|unit| self.is_reportable(unit)).collect();
        units.sort_by(|one, other| {
            let weight = |unit: &Unit| self.weight(unit, &server);
            weight(other)
                .total_cmp(&weight(one))
                .then_with(|| one.lead.cmp(&other.lead))
        });
        units.truncate(self.settings.report_units_max);
        let units: Vec<Unit> = units.into_iter().map(|unit| self.reported(unit, now)).collect();
        Some(Report {
            round: self.rounds,
            promised: self.promises.used(),
            unsettled: self.is_unsettled(),
            reservations: self.reservations.iter().cloned().collect(),
            rest: rest(&server, &units),
            units,
            pinned: u32::try_from(self.relations.pins.len()).unwrap_or(u32::MAX),
            separated_kinds: self.separated_kinds(),
            wishes: self.reserve_requests(now, fired),
            balances: self.balances(fired),
            streaks: self.streaks.values().copied().collect(),
            added_for_reserve: self.added_for_reserve,
            free_periods: self.free_periods,
            server,
        })
    }

    /// A unit in the form reported: bounded, and with the reason it cannot move.
    fn reported(&self, unit: &Unit, now: Time) -> Unit {
        let mut reported = Unit {
            held: self.held(unit, now),
            ..unit.clone()
        };
        if reported.actors.len() > UNIT_ACTORS_MAX {
            let is_reserved = |actor: &ActorId| self.reservations.get(actor).is_some();
            reported.actors.sort_by_cached_key(|actor| !is_reserved(actor));
            reported.actors.truncate(UNIT_ACTORS_MAX);
        }
        reported.apart_from.truncate(UNIT_ACTORS_MAX);
        reported
    }

    /// Why a unit cannot move at present.
    pub(super) fn held(&self, unit: &Unit, now: Time) -> Option<Held> {
        let busy = unit.actors.iter().find(|actor| self.is_on_the_move(actor));
        let held = self.units.held(unit, now, self.settings.period);
        held.or_else(|| busy.map(|actor| Held::Recent(actor.clone())))
    }

    /// Whether an actor is moving, or a target has been queried for it.
    pub(super) fn is_on_the_move(&self, actor: &ActorId) -> bool {
        self.moves.contains(actor) || self.queries.values().any(|open| open.actors.contains(actor))
    }

    /// This server's statistics at the end of the last period, without the actors that have left since.
    pub(super) fn own_server(&self) -> Option<ServerStats> {
        let mut server = self
            .snapshot
            .servers
            .iter()
            .find(|server| server.node == self.node)?
            .clone();
        server.state = self.state();
        server.actors = server.actors.saturating_sub(self.gone.len() as u64);
        Some(server)
    }

    /// Whether a global manager needs to know the unit: `balance` rules may move it, or the server may be emptied. A
    /// server is emptied when it drains, is dedicated to an actor, or may become dedicated.
    fn is_reportable(&self, unit: &Unit) -> bool {
        let may_be_emptied = self.state() == ServerState::Draining
            || !self.reservations.is_empty()
            || self
                .policy
                .rules()
                .iter()
                .any(|rule| rule.resource_behaviours().next().is_some());
        may_be_emptied || self.policy.balances().any(|(_, balance)| unit.has_kind(&balance.kinds))
    }

    /// The unit's weight: its largest share of any resource.
    fn weight(&self, unit: &Unit, server: &ServerStats) -> f64 {
        Resource::ALL
            .into_iter()
            .filter_map(|resource| {
                let capacity = server.usage[resource].capacity.filter(|capacity| *capacity > 0.0)?;
                Some(unit.used[resource] / capacity)
            })
            .fold(0.0, f64::max)
    }

    /// The actor types on this server, or on their way to it, that a rule separates from others.
    pub(super) fn separated_kinds(&self) -> Vec<ActorType> {
        if self.policy.type_separations().next().is_none() {
            return Vec::new();
        }
        let here = self.units.iter().flat_map(|unit| &unit.actors);
        let kinds: BTreeSet<ActorType> = here.chain(self.promises.actors()).map(|actor| actor.kind).collect();
        let named = |kind: ActorType| {
            let variables = |rule: usize| &self.policy.rules()[rule].variables;
            self.policy
                .type_separations()
                .any(|rule| variables(rule).iter().any(|variable| variable.admits(kind)))
        };
        kinds.into_iter().filter(|kind| named(*kind)).collect()
    }

    /// Whether a rule separates actors of this type from one of the types here.
    pub(super) fn is_kept_apart_here(&self, kind: ActorType) -> bool {
        self.separated_kinds()
            .into_iter()
            .any(|other| separates_kinds(&self.policy, kind, other))
    }

    /// Firings of rules that balance in addition to actions on actors.
    fn balances(&self, fired: &[Fired]) -> Vec<Cause> {
        let mut seen = BTreeSet::new();
        let balances = |firing: &&Fired| firing.actions.iter().any(|action| matches!(action, Action::Balance(_)));
        let first = fired.iter().filter(balances).filter(|firing| seen.insert(firing.rule));
        first
            .map(|firing| {
                let rule = &self.policy.rules()[firing.rule];
                Cause {
                    server: Some(self.node),
                    ..Cause::new(firing, rule.name.as_deref(), &rule.text)
                }
            })
            .collect()
    }

    /// The `reserve` actions that fired for actors without a dedicated server, one per actor.
    fn reserve_requests(&self, now: Time, fired: &[Fired]) -> Vec<Wish> {
        let mut requests: Vec<Wish> = Vec::new();
        if self.is_draining() {
            return requests;
        }
        let mut requested: BTreeSet<&ActorId> = BTreeSet::new();
        for firing in fired {
            for action in &firing.actions {
                let Action::Reserve { actor, resource } = action else {
                    continue;
                };
                let Some(unit) = self.units.of(actor) else { continue };
                let priority = self.policy.priority(firing.rule, action);
                let pinned = unit.held.as_ref().is_some_and(|held| held.holds_against(priority));
                // An actor that shares its server still requests its own, unless it could not move there.
                let satisfied = self
                    .reservations
                    .get(actor)
                    .is_some_and(|reservation| reservation.arrived && (pinned || reservation.shares_with.is_none()));
                let used = self.stats(actor);
                if satisfied || !requested.insert(actor) {
                    continue;
                }
                let rule = &self.policy.rules()[firing.rule];
                requests.push(Wish {
                    cause: Cause::new(firing, rule.name.as_deref(), &rule.text),
                    actor: actor.clone(),
                    resource: *resource,
                    used: used.map_or(0.0, |stats| stats.used[*resource]),
                    priority,
                    unit: self.reported(unit, now),
                    awaiting: self.awaiting.get(actor).is_some_and(|until| *until > now),
                });
            }
        }
        requests.sort_by(|one, other| {
            let used = |request: &Wish| request.unit.used[request.resource];
            other
                .priority
                .cmp(&one.priority)
                .then(one.cause.rule.cmp(&other.cause.rule))
                .then(used(other).total_cmp(&used(one)))
                .then_with(|| one.actor.cmp(&other.actor))
        });
        requests.truncate(RESERVE_REQUESTS_MAX);
        requests
    }
}

/// The part of a server's load that is in no listed unit.
fn rest(server: &ServerStats, units: &[Unit]) -> Rest {
    let listed: u64 = units.iter().map(|unit| unit.count).sum();
    let mut used = PerResource::default();
    for resource in Resource::ALL {
        let of_units: f64 = units.iter().map(|unit| unit.used[resource]).sum();
        used[resource] = (asked_for(server, resource) - of_units).max(0.0);
    }
    Rest {
        actors: server.actors.saturating_sub(listed),
        used,
    }
}

impl Held {
    /// Whether this keeps the unit from moving for a proposal of this priority.
    pub(crate) fn holds_against(&self, priority: i32) -> bool {
        match self {
            Held::Pinned(_, pinned) => *pinned >= priority,
            Held::Recent(_) => true,
        }
    }
}
