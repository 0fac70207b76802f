//! The local manager's view of its own server, shared by all steps of a decision.

mod promises;
mod relations;
mod reservations;
mod statistics;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, ActorType, NodeId, Resource, ServerState, ServerStats, Snapshot};

use crate::context::Context;
use crate::limits::demand;
use crate::place::is_separated;
use crate::{Held, ServerDigest, Unit};

pub(crate) use promises::Promises;
pub(crate) use relations::{Pair, Relations, partner};
pub(crate) use reservations::{Reservations, Reviewed};
pub(crate) use statistics::Statistics;
pub(crate) use units::Units;

/// Cap on the demand factor: a backlog can make demand arbitrarily large, and the excess carries no information.
const DEMAND_FACTOR_MAX: f64 = 16.0;

/// This server: its statistics, and the relations, units, reservations and promises in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnServer {
    pub(crate) statistics: Statistics,
    pub(crate) relations: Relations,
    pub(crate) units: Units,
    pub(crate) reservations: Reservations,
    pub(crate) promises: Promises,
    /// Actors that are moving away, or for which a target has been queried.
    pub(crate) in_flight: BTreeSet<ActorId>,
    refusals: Refusals,
    /// Number of periods this server has been draining.
    draining_periods: u32,
}

/// Servers that refused an actor in this period or the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    recent: BTreeMap<ActorId, BTreeSet<NodeId>>,
    before: BTreeMap<ActorId, BTreeSet<NodeId>>,
}

impl OwnServer {
    /// Replaces the statistics by those of a new period.
    pub(crate) fn start_period(&mut self, context: &Context, snapshot: Snapshot) {
        self.statistics.replace(snapshot);
        self.refusals.before = std::mem::take(&mut self.refusals.recent);
        self.promises.review(context.now, self.statistics.snapshot());
    }

    /// Updates the units after changes of relations, moves and refusals.
    pub(crate) fn rebuild_units(&mut self, context: &Context) {
        let factor = self.demand_factor(context);
        self.units = Units::new(
            &self.statistics,
            &self.relations,
            &self.promises,
            &self.refusals,
            factor,
        );
    }

    /// Ratio of CPU demand to use on this server: 1.0 unless it is saturated. Actors on a saturated server use less
    /// than they would elsewhere, and their demand decides where they fit.
    fn demand_factor(&self, context: &Context) -> f64 {
        let factor = self
            .stats(context)
            .map_or(1.0, |server| demand(&server) / server.usage.cpu.used);
        if factor.is_finite() {
            factor.clamp(1.0, DEMAND_FACTOR_MAX)
        } else {
            1.0
        }
    }

    /// Whether the server moves its actors away regardless of rules, and accepts no others.
    pub(crate) fn is_draining(&self, context: &Context) -> bool {
        let announced = context.member(context.node).map(|member| member.state);
        let reported = self.statistics.server(context.node).map(|server| server.state);
        [announced, reported].contains(&Some(ServerState::Draining))
    }

    /// Whether the server may leave: it has been empty for a whole period in which it accepted no actors. Actors sent
    /// before all nodes saw the drain have arrived by then. Called once per period.
    pub(crate) fn has_drained(&mut self, context: &Context) -> bool {
        if !self.is_draining(context) {
            self.draining_periods = 0;
            return false;
        }
        self.draining_periods += 1;
        self.is_empty(context) && self.draining_periods > 1
    }

    /// Whether no actor is on the server or on its way to it.
    pub(crate) fn is_empty(&self, context: &Context) -> bool {
        self.stats(context).is_some_and(|server| server.actors == 0) && self.promises.is_empty()
    }

    /// The server's statistics at the end of the last period, without the actors that have left since.
    pub(crate) fn stats(&self, context: &Context) -> Option<ServerStats> {
        let mut server = self.statistics.server(context.node)?.clone();
        if self.is_draining(context) {
            server.state = ServerState::Draining;
        }
        server.actors = server.actors.saturating_sub(self.statistics.gone());
        Some(server)
    }

    /// The digest of this server.
    pub(crate) fn digest(&self, context: &Context) -> Option<ServerDigest> {
        let reserved = self.reservations.iter().map(|reservation| reservation.actor.clone());
        Some(ServerDigest {
            server: self.stats(context)?,
            reserved: reserved.collect(),
            pinned: self.relations.pinned_count(),
            separated_kinds: self.separated_kinds(context),
        })
    }

    /// The actor types on this server, or on their way to it, that a rule separates from others.
    pub(crate) fn separated_kinds(&self, context: &Context) -> Vec<ActorType> {
        let policy = &context.policy;
        if policy.type_separations().next().is_none() {
            return Vec::new();
        }
        let here = self.units.iter().flat_map(|unit| &unit.actors);
        let kinds: BTreeSet<ActorType> = here.chain(self.promises.actors()).map(|actor| actor.kind).collect();
        let named = |kind: &ActorType| {
            let mut variables = policy
                .type_separations()
                .flat_map(|rule| &policy.rules()[rule].variables);
            variables.any(|variable| variable.admits(*kind))
        };
        kinds.into_iter().filter(named).collect()
    }

    /// Whether a rule separates actors of this type from one of the types here.
    pub(crate) fn is_kept_apart(&self, context: &Context, kind: ActorType) -> bool {
        is_separated(&context.policy, kind, &self.separated_kinds(context))
    }

    /// Why a unit cannot move at present.
    pub(crate) fn held(&self, context: &Context, unit: &Unit) -> Option<Held> {
        let held = self.units.held(unit, context.now, context.settings.period);
        let busy = || unit.actors.iter().find(|actor| self.in_flight.contains(actor));
        held.or_else(|| busy().map(|actor| Held::Recent(actor.clone())))
    }

    /// Whether an actor is on this server or has been promised a place.
    pub(crate) fn expects(&self, actor: &ActorId) -> bool {
        self.units.contains(actor) || self.promises.covers(actor)
    }

    /// Remembers that a server refused these actors, so that it is not proposed again immediately.
    pub(crate) fn remember_refusal(&mut self, actors: Vec<ActorId>, by: NodeId) {
        for actor in actors {
            self.refusals.recent.entry(actor).or_default().insert(by);
        }
    }

    /// Ends the attempt to move these actors; they stay.
    pub(crate) fn end_flight(&mut self, actors: &[ActorId]) {
        self.in_flight.retain(|actor| !actors.contains(actor));
    }

    /// Removes an actor that has moved away.
    pub(crate) fn remove(&mut self, context: &Context, actor: &ActorId) {
        self.statistics.remove(context.now, actor);
        self.reservations.remove(actor);
    }

    /// Drops all effects of the old policy. Relations refer to its rules by index. A reservation ends, too: a new rule
    /// that still wants it fires again with the actor already on its own server.
    pub(crate) fn forget_rules(&mut self) {
        self.relations = Relations::default();
        self.reservations = Reservations::default();
    }

    /// Whether moves during the period were large enough to make the measured use unreliable. A very short period, such
    /// as a new server's first, is unreliable, too.
    pub(crate) fn is_unsettled(&self, context: &Context) -> bool {
        if self.statistics.snapshot().period < context.settings.period / 2 {
            return true;
        }
        let Some(server) = self.stats(context) else {
            return true;
        };
        let came = self
            .statistics
            .arrived()
            .filter(|stats| self.promises.covers(&stats.actor));
        let changes: Vec<_> = came
            .map(|stats| &stats.used)
            .chain(self.statistics.departed())
            .collect();
        Resource::ALL.into_iter().any(|resource| {
            let changed: f64 = changes.iter().map(|used| used[resource]).sum();
            let noise = context.settings.noise_margin / 100.0 * server.usage[resource].capacity.unwrap_or(0.0);
            changed > noise
        })
    }
}

impl Refusals {
    /// The servers that refused this actor.
    pub(crate) fn of(&self, actor: &ActorId) -> impl Iterator<Item = NodeId> {
        let nodes = [self.recent.get(actor), self.before.get(actor)];
        nodes.into_iter().flatten().flatten().copied()
    }
}
