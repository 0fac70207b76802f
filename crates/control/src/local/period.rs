//! The end of a period: evaluates rules on the new statistics and updates the remembered state.

use std::collections::BTreeSet;

use elastin_policy::{Fired, Index, Scope};
use elastin_types::{ActorId, Resource, Snapshot, Time};

use super::Lem;
use super::companions::{companions, is_still_needed};
use super::event::LemCommand;
use super::reservations::Reviewed;
use super::units::{Circumstances, Units};
use crate::limits::demand;
use crate::{Change, Outcome, ReleaseReason, Reservation, Streak};

/// Cap on the demand factor: a backlog can make demand arbitrarily large, and the excess carries no information.
const DEMAND_FACTOR_MAX: f64 = 16.0;

impl Lem {
    /// Stores the statistics of a period and starts its round.
    pub(super) fn end_period(&mut self, now: Time, snapshot: Snapshot, out: &mut Vec<LemCommand>) {
        self.end_lost_moves(now, out);
        let listed = snapshot.actors.iter().enumerate();
        self.listed = listed.map(|(index, stats)| (stats.actor.clone(), index)).collect();
        self.snapshot = snapshot;
        self.gone.clear();
        self.refused_before = std::mem::take(&mut self.refused);
        self.promises.review(now, &self.snapshot);
        let start = self.snapshot.at - self.snapshot.period;
        self.departures.retain(|(at, _)| *at > start);

        let fired = self.evaluate(now, out);
        self.rebuild_units();
        self.split_oversized(now, out);
        self.count_streaks();
        self.free_periods = if self.reservations.is_empty() {
            self.free_periods.saturating_add(1)
        } else {
            0
        };
        self.leave_if_empty(out);
        self.start_round(now, &fired, out);
    }

    /// Evaluates the rules, and renews or ends their relations and reservations.
    fn evaluate(&mut self, now: Time, out: &mut Vec<LemCommand>) -> Vec<Fired> {
        let facts = Index::new(&self.snapshot);
        let fired = self.policy.evaluate(&facts, Scope::Local(self.node));
        let needed: BTreeSet<ActorId> = self
            .reservations
            .iter()
            .filter(|reservation| is_still_needed(&self.policy, &facts, reservation))
            .map(|reservation| reservation.actor.clone())
            .collect();
        // The relations of a reservation's rule hold as long as it does, so that companions do not drift off. The load
        // of the server that the actor left no longer matters.
        let companions: Vec<Fired> = self
            .reservations
            .iter()
            .flat_map(|reservation| companions(&self.policy, &facts, &self.snapshot, reservation))
            .collect();

        self.relations.age(|actor| self.listed.contains_key(actor));
        for firing in fired.iter().chain(&companions) {
            self.relations.refresh(&self.policy, firing);
        }

        drop(facts);
        let (snapshot, listed) = (&self.snapshot, &self.listed);
        let ended = self.reservations.review(now, |reservation| Reviewed {
            used: listed
                .get(&reservation.actor)
                .map(|index| snapshot.actors[*index].used[reservation.resource]),
            holds: needed.contains(&reservation.actor),
        });
        for (reservation, reason) in ended {
            self.record_release(now, reservation, reason, out);
        }
        fired
    }

    fn record_release(
        &mut self,
        now: Time,
        reservation: Reservation,
        reason: ReleaseReason,
        out: &mut Vec<LemCommand>,
    ) {
        let change = Change::Release {
            actor: reservation.actor,
            node: self.node,
            reason,
        };
        let decision = self.decision(now, Some(reservation.cause), change, Vec::new());
        out.push(LemCommand::record(decision.with_outcome(Outcome::Done)));
    }

    /// Updates the units after changes of relations, moves and refusals.
    pub(super) fn rebuild_units(&mut self) {
        let mut refused = self.refused_before.clone();
        for (actor, nodes) in &self.refused {
            refused.entry(actor.clone()).or_default().extend(nodes);
        }
        self.units = Units::new(
            &self.snapshot,
            &self.relations,
            &Circumstances {
                gone: &self.gone,
                moved: &self.promises.actors().collect(),
                refused: &refused,
                demand_factor: self.demand_factor(),
            },
        );
    }

    /// Ratio of CPU demand to use on this server: 1.0 unless it is saturated.
    fn demand_factor(&self) -> f64 {
        let factor = self
            .own_server()
            .map_or(1.0, |server| demand(&server) / server.usage.cpu.used);
        if factor.is_finite() {
            factor.clamp(1.0, DEMAND_FACTOR_MAX)
        } else {
            1.0
        }
    }

    /// Updates the streaks beyond the bounds of `balance` rules. They are counted here, because the server reports to
    /// another global manager in each period.
    fn count_streaks(&mut self) {
        let Some(server) = self.own_server() else { return };
        let bounds: Vec<_> = self
            .policy
            .balances()
            .map(|(rule, balance)| (rule, balance.resource, balance.upper, balance.lower))
            .collect();
        for (rule, resource, upper, lower) in bounds {
            let percent = server.usage[resource].percent();
            let above = percent.zip(upper).is_some_and(|(percent, upper)| percent > upper);
            let below = percent.zip(lower).is_some_and(|(percent, lower)| percent < lower);
            let streak = self.streaks.entry(rule).or_insert(Streak {
                rule,
                above: 0,
                below: 0,
            });
            streak.above = if above { streak.above.saturating_add(1) } else { 0 };
            streak.below = if below { streak.below.saturating_add(1) } else { 0 };
        }
    }

    /// Whether moves during the period were large enough to make the measured use unreliable. A very short period, such
    /// as a new server's first, is unreliable, too.
    pub(super) fn is_unsettled(&self) -> bool {
        if self.snapshot.period < self.settings.period / 2 {
            return true;
        }
        let Some(server) = self.own_server() else {
            return true;
        };
        let start = self.snapshot.at - self.snapshot.period;
        let came = self
            .snapshot
            .actors
            .iter()
            .filter(|stats| stats.since > start && self.promises.covers(&stats.actor))
            .map(|stats| &stats.used);
        let left = self
            .departures
            .iter()
            .filter(|(at, _)| *at > start)
            .map(|(_, used)| used);
        let changes: Vec<_> = came.chain(left).collect();
        Resource::ALL.into_iter().any(|resource| {
            let changed: f64 = changes.iter().map(|used| used[resource]).sum();
            let noise = self.settings.noise_margin / 100.0 * server.usage[resource].capacity.unwrap_or(0.0);
            changed > noise
        })
    }
}
