//! The exchange with global managers: a report per period, bounded regardless of the number of actors, and the reply.

use std::collections::{BTreeMap, BTreeSet};

use elastin_policy::{Action, Fired};
use elastin_types::{ActorId, NodeId, PerResource, Resource, ServerStats, Time};

use crate::context::Context;
use crate::limits::{asked_for, capacity};
use crate::local::server::OwnServer;
use crate::settings::PROMISE_PERIODS;
use crate::{Cause, Proposal, Report, ReportReply, Rest, ServerDigest, Streak, Unit, Wish};

/// Number of `reserve` requests in a report: those of the highest priority, then of the greatest use.
const RESERVE_REQUESTS_MAX: usize = 32;

/// Number of actors that a report lists per unit.
const UNIT_ACTORS_MAX: usize = 256;

/// Number of servers that a manager remembers from a reply.
const KNOWN_MAX: usize = 1_024;

/// Periods for which a server requested by one global manager is not requested again by another. With several managers,
/// it takes some periods until the old and the new server report to the same one.
const AWAITING_PERIODS: u32 = 12;

/// State that survives the global managers, because every report contains it, and the result of the last reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporting {
    /// Number of the last report.
    round: u64,
    /// Consecutive periods beyond the bounds of each `balance` rule.
    streaks: BTreeMap<usize, Streak>,
    free_periods: u32,
    added_for_reserve: bool,
    /// Actors for which a dedicated server has been requested, with the request's expiry.
    awaiting: BTreeMap<ActorId, Time>,
    /// The servers in the last reply.
    known: Vec<ServerDigest>,
    /// The global manager that replied last; it places new actors.
    last_global: Option<NodeId>,
}

impl Reporting {
    /// The other servers, as the last reply listed them.
    pub(crate) fn known(&self) -> &[ServerDigest] {
        &self.known
    }

    /// The global manager that replied last.
    pub(crate) fn last_global(&self) -> Option<NodeId> {
        self.last_global
    }

    /// Drops nodes that are no longer members.
    pub(crate) fn forget_lost(&mut self, context: &Context) {
        let is_there = |node: NodeId| context.member(node).is_some();
        self.known.retain(|digest| is_there(digest.server.node));
        self.last_global = self.last_global.filter(|node| is_there(*node));
    }

    /// Drops the streaks of the old policy's rules.
    pub(crate) fn forget_rules(&mut self) {
        self.streaks.clear();
    }

    /// Counts a period. This happens here, because the server reports to another global manager in each period.
    pub(crate) fn count_period(&mut self, context: &Context, server: &OwnServer) {
        self.free_periods = if server.reservations.is_empty() {
            self.free_periods.saturating_add(1)
        } else {
            0
        };
        let Some(stats) = server.stats(context) else { return };
        for (rule, balance) in context.policy.balances() {
            let percent = stats.usage[balance.resource].percent();
            let above = percent
                .zip(balance.upper)
                .is_some_and(|(percent, upper)| percent > upper);
            let below = percent
                .zip(balance.lower)
                .is_some_and(|(percent, lower)| percent < lower);
            let streak = self.streaks.entry(rule).or_insert(Streak {
                rule,
                above: 0,
                below: 0,
            });
            streak.above = if above { streak.above.saturating_add(1) } else { 0 };
            streak.below = if below { streak.below.saturating_add(1) } else { 0 };
        }
    }

    /// The report of this period; `None` before the first statistics.
    pub(crate) fn report(&mut self, context: &Context, server: &OwnServer, fired: &[Fired]) -> Option<Report> {
        self.round += 1;
        let stats = server.stats(context)?;
        let mut units: Vec<&Unit> = server
            .units
            .iter()
            .filter(|unit| is_reportable(context, server, unit))
            .collect();
        units.sort_by(|one, other| {
            let heavier = weight(other, &stats).total_cmp(&weight(one, &stats));
            heavier.then_with(|| one.lead.cmp(&other.lead))
        });
        units.truncate(context.settings.report_units_max);
        let units: Vec<Unit> = units.into_iter().map(|unit| reported(context, server, unit)).collect();
        Some(Report {
            round: self.round,
            promised: server.promises.used(),
            unsettled: server.is_unsettled(context),
            reservations: server.reservations.iter().cloned().collect(),
            rest: rest(&stats, &units),
            units,
            pinned: server.relations.pinned_count(),
            separated_kinds: server.separated_kinds(context),
            wishes: self.reserve_requests(context, server, fired),
            balances: balances(context, fired),
            streaks: self.streaks.values().copied().collect(),
            added_for_reserve: self.added_for_reserve,
            free_periods: self.free_periods,
            server: stats,
        })
    }

    /// The `reserve` actions that fired for actors without a dedicated server, one per actor.
    fn reserve_requests(&self, context: &Context, server: &OwnServer, fired: &[Fired]) -> Vec<Wish> {
        let mut requests: Vec<Wish> = Vec::new();
        if server.is_draining(context) {
            return requests;
        }
        let mut requested: BTreeSet<&ActorId> = BTreeSet::new();
        let actions = fired
            .iter()
            .flat_map(|firing| firing.actions.iter().map(move |action| (firing, action)));
        for (firing, action) in actions {
            let Action::Reserve { actor, resource } = action else {
                continue;
            };
            let Some(unit) = server.units.of(actor) else { continue };
            let priority = context.policy.priority(firing.rule, action);
            let pinned = unit.held.as_ref().is_some_and(|held| held.holds_against(priority));
            // An actor that shares its server still requests its own, unless it could not move there.
            let satisfied = server
                .reservations
                .get(actor)
                .is_some_and(|reservation| reservation.arrived && (pinned || reservation.shares_with.is_none()));
            if satisfied || !requested.insert(actor) {
                continue;
            }
            requests.push(Wish {
                cause: Cause::new(&context.policy, firing),
                actor: actor.clone(),
                resource: *resource,
                used: server
                    .statistics
                    .actor(actor)
                    .map_or(0.0, |stats| stats.used[*resource]),
                priority,
                unit: reported(context, server, unit),
                awaiting: self.awaiting.get(actor).is_some_and(|until| *until > context.now),
            });
        }
        requests.sort_by(Wish::most_urgent_first);
        requests.truncate(RESERVE_REQUESTS_MAX);
        requests
    }

    /// Handles a global manager's reply; returns its proposals. A late reply is based on an earlier period: its moves
    /// are proposed again if still needed.
    pub(crate) fn receive(
        &mut self,
        context: &Context,
        server: &mut OwnServer,
        from: NodeId,
        reply: ReportReply,
    ) -> Option<Vec<Proposal>> {
        if reply.round != self.round {
            return None;
        }
        self.last_global = Some(from);
        self.known = reply.servers;
        self.known.truncate(KNOWN_MAX);
        self.added_for_reserve |= reply.added_for_reserve;
        self.awaiting.retain(|_, until| *until > context.now);
        let awaited_until = context.after_periods(AWAITING_PERIODS);
        for actor in reply.awaiting {
            self.awaiting.entry(actor).or_insert(awaited_until);
        }
        for reservation in reply.dedicate {
            server
                .reservations
                .add(reservation, context.after_periods(PROMISE_PERIODS));
        }
        Some(reply.proposals)
    }
}

/// A unit in the form reported: bounded, and with the reason it cannot move.
fn reported(context: &Context, server: &OwnServer, unit: &Unit) -> Unit {
    let mut reported = Unit {
        held: server.held(context, unit),
        ..unit.clone()
    };
    if reported.actors.len() > UNIT_ACTORS_MAX {
        let is_reserved = |actor: &ActorId| server.reservations.get(actor).is_some();
        reported.actors.sort_by_cached_key(|actor| !is_reserved(actor));
        reported.actors.truncate(UNIT_ACTORS_MAX);
    }
    reported.apart_from.truncate(UNIT_ACTORS_MAX);
    reported
}

/// Whether a global manager needs to know the unit: `balance` rules may move it, or the server may be emptied. A
/// server is emptied when it drains, is dedicated to an actor, or may become dedicated.
fn is_reportable(context: &Context, server: &OwnServer, unit: &Unit) -> bool {
    let policy = &context.policy;
    let mut rules = policy.rules().iter();
    let may_be_emptied = server.is_draining(context)
        || !server.reservations.is_empty()
        || rules.any(|rule| rule.resource_behaviours().next().is_some());
    may_be_emptied || policy.balances().any(|(_, balance)| unit.has_kind(&balance.kinds))
}

/// The unit's weight: its largest share of any resource.
fn weight(unit: &Unit, server: &ServerStats) -> f64 {
    let share = |resource| Some(unit.used[resource] / capacity(server, resource)?);
    Resource::ALL.into_iter().filter_map(share).fold(0.0, f64::max)
}

/// Firings of rules that balance in addition to actions on actors.
fn balances(context: &Context, fired: &[Fired]) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let balances = |firing: &&Fired| firing.actions.iter().any(|action| matches!(action, Action::Balance(_)));
    let first = fired.iter().filter(balances).filter(|firing| seen.insert(firing.rule));
    first
        .map(|firing| Cause {
            server: Some(context.node),
            ..Cause::new(&context.policy, firing)
        })
        .collect()
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
