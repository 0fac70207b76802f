//! A global manager's view: the servers that reported recently, with the changes planned for them since.

use std::collections::BTreeMap;

use elastin_types::{ActorId, ActorType, NodeId, PerResource, Resource, ServerState, Snapshot, Time};

use crate::limits::{asked_for, capacity};
use crate::{Capacity, Held, Report, Reservation, ServerDigest, Streak, Unit};

/// Number of servers in a reply: enough to place an actor without another request.
const DIGESTS_MAX: usize = 64;

/// One server as last reported, adjusted by later plans.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) report: Report,
    /// Time the report arrived.
    pub(crate) at: Time,
    /// Whether the report is still unanswered: moves can only be proposed in its reply.
    pub(crate) is_open: bool,
    /// Load once everything promised and planned has happened.
    pub(crate) load: PerResource<f64>,
    /// Current and planned reservations.
    pub(crate) reservations: Vec<Reservation>,
    /// The actor that the server was added for and is kept free for.
    pub(crate) kept_for: Option<ActorId>,
}

impl Server {
    pub(crate) fn new(report: Report, at: Time) -> Self {
        let mut load = PerResource::default();
        for resource in Resource::ALL {
            load[resource] = asked_for(&report.server, resource) + report.promised[resource];
        }
        Self {
            load,
            at,
            is_open: true,
            reservations: report.reservations.clone(),
            kept_for: None,
            report,
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.report.server.node
    }

    pub(crate) fn capacity(&self, resource: Resource) -> Option<f64> {
        capacity(&self.report.server, resource)
    }

    /// Measured use, in percent.
    pub(crate) fn measured(&self, resource: Resource) -> Option<f64> {
        self.report.server.usage[resource].percent()
    }

    /// Planned load, in percent; above 100 on a saturated server.
    pub(crate) fn percent(&self, resource: Resource) -> Option<f64> {
        self.capacity(resource)
            .map(|capacity| 100.0 * self.load[resource] / capacity)
    }

    /// Planned load with the unit added, in percent.
    pub(crate) fn percent_with(&self, unit: &Unit, resource: Resource) -> Option<f64> {
        self.capacity(resource)
            .map(|capacity| 100.0 * (self.load[resource] + unit.used[resource]) / capacity)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.report.server.state == ServerState::Draining
    }

    pub(crate) fn is_reserved(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// Whether it takes part in balancing; reserved and leaving servers do not.
    pub(crate) fn is_common(&self) -> bool {
        !self.is_draining() && !self.is_reserved() && self.kept_for.is_none()
    }

    /// Whether no actor is on it or on its way to it.
    pub(crate) fn is_empty(&self) -> bool {
        let promised = Resource::ALL
            .into_iter()
            .any(|resource| self.report.promised[resource] > 0.0);
        self.report.server.actors == 0 && self.report.units.is_empty() && !promised
    }

    pub(crate) fn streak(&self, rule: usize) -> Streak {
        let found = self.report.streaks.iter().find(|streak| streak.rule == rule);
        found.copied().unwrap_or(Streak {
            rule,
            above: 0,
            below: 0,
        })
    }

    /// Whether the unit contains an actor that this server is reserved for.
    pub(crate) fn is_reserved_unit(&self, unit: &Unit) -> bool {
        self.reservations
            .iter()
            .any(|reservation| unit.actors.contains(&reservation.actor))
    }
}

/// The servers that a global manager sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) servers: BTreeMap<NodeId, Server>,
}

impl View {
    pub(crate) fn get(&self, node: NodeId) -> Option<&Server> {
        self.servers.get(&node)
    }

    /// The servers that take part in balancing.
    pub(crate) fn common(&self) -> impl Iterator<Item = &Server> {
        self.servers.values().filter(|server| server.is_common())
    }

    /// Plans a move: from now on the unit counts at its target, and stays there for this period.
    pub(crate) fn plan_move(&mut self, lead: &ActorId, from: NodeId, to: NodeId) {
        let Some(source) = self.servers.get_mut(&from) else {
            return;
        };
        let Some(index) = source.report.units.iter().position(|unit| unit.lead == *lead) else {
            return;
        };
        let mut unit = source.report.units.remove(index);
        source.report.server.actors = source.report.server.actors.saturating_sub(unit.count);
        source.report.wishes.retain(|request| request.unit.lead != *lead);
        for resource in Resource::ALL {
            source.load[resource] = (source.load[resource] - unit.used[resource]).max(0.0);
        }
        let separated: Vec<ActorType> = source.report.separated_kinds.clone();
        let Some(target) = self.servers.get_mut(&to) else {
            return;
        };
        // The target inherits the separated types, so that later moves keep apart from this unit, too.
        let kinds = unit.actors.iter().map(|actor| actor.kind);
        target
            .report
            .separated_kinds
            .extend(kinds.filter(|kind| separated.contains(kind)));
        for resource in Resource::ALL {
            target.load[resource] += unit.used[resource];
        }
        target.report.server.actors += unit.count;
        unit.held.get_or_insert(Held::Recent(unit.lead.clone()));
        target.report.units.push(unit);
    }

    /// The measured values in the form that rules evaluate.
    pub(crate) fn snapshot(&self, at: Time, period: std::time::Duration) -> Snapshot {
        Snapshot {
            at,
            period,
            servers: self
                .servers
                .values()
                .map(|server| server.report.server.clone())
                .collect(),
            actors: Vec::new(),
        }
    }

    /// Total required and provided capacity.
    pub(crate) fn capacity(&self, now: Time) -> Capacity {
        let mut capacity = Capacity {
            at: now,
            servers: u32::try_from(self.servers.len()).unwrap_or(u32::MAX),
            required: PerResource::default(),
            provided: PerResource::default(),
        };
        for server in self.servers.values() {
            for resource in Resource::ALL {
                capacity.required[resource] += asked_for(&server.report.server, resource);
                capacity.provided[resource] += server.capacity(resource).unwrap_or(0.0);
            }
        }
        capacity
    }

    /// Digests of all servers.
    pub(crate) fn digests(&self) -> Vec<ServerDigest> {
        self.servers.values().map(digest).collect()
    }

    /// Digests of the servers with most room; bounded because every reply carries them.
    pub(crate) fn digests_bounded(&self) -> Vec<ServerDigest> {
        let mut digests = self.digests();
        let percent = |digest: &ServerDigest| digest.server.usage.cpu.percent().unwrap_or(0.0);
        digests.sort_by(|one, other| percent(one).total_cmp(&percent(other)));
        digests.truncate(DIGESTS_MAX);
        digests
    }
}

fn digest(server: &Server) -> ServerDigest {
    let mut stats = server.report.server.clone();
    for resource in Resource::ALL {
        stats.usage[resource].used = server.load[resource];
    }
    let dedicated = server.reservations.iter().map(|reservation| &reservation.actor);
    ServerDigest {
        server: stats,
        reserved: dedicated.chain(&server.kept_for).cloned().collect(),
        pinned: server.report.pinned,
        separated_kinds: server.report.separated_kinds.clone(),
    }
}
