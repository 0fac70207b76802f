//! The witness of a warning: a snapshot in which the conditions of some rules hold together.
//!
//! The analysis assumes independent features, but a snapshot ties some of them to each other. A candidate is therefore
//! tested with the evaluator and dropped if the rules do not fire.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::{
    ActorId, ActorStats, ActorType, CallIn, Caller, Method, NodeId, PerResource, References, Resource, Schema,
    ServerState, ServerStats, Snapshot, Time, Usage,
};

use super::joint::{Key, Space, World, WorldCaller};
use crate::{Atom, Index, Policy, Statistic};

/// The period of a witness: with an hour, a few calls per hour are still a whole number.
const PERIOD: Duration = Duration::from_secs(3600);
/// Capacity of servers for each resource, unless the conditions require another.
const CAPACITY: f64 = 1000.0;
/// Number of calls to an actor if only their share or size matters: enough for fine shares.
const CALLS: f64 = 10_000.0;
/// First key of actors that only provide the remaining calls.
const EXTRA_KEYS: u64 = 1000;

/// A snapshot in which all rules of a world fire, if one is found.
pub(super) fn witness(policy: &Policy, schema: &Schema, world: &World, space: &Space) -> Option<Snapshot> {
    let any_kind = schema.actors().first()?.kind();
    let ids: Vec<ActorId> = world
        .kinds
        .iter()
        .zip(0_u64..)
        .map(|(kind, key)| ActorId::new(kind.unwrap_or(any_kind), key))
        .collect();
    let mut maker = Maker {
        space,
        unit_seconds: policy.count_unit().seconds(),
        any_kind,
        snapshot: Snapshot {
            at: Time::ZERO + PERIOD,
            period: PERIOD,
            ..Snapshot::default()
        },
        ids,
    };
    maker.servers_and_actors();
    maker.calls();
    maker.references(policy, world);
    let shown = shows(policy, world, &maker.ids, &maker.snapshot);
    shown.then_some(maker.snapshot)
}

/// Whether every rule of the world holds in the snapshot for its actors.
fn shows(policy: &Policy, world: &World, ids: &[ActorId], snapshot: &Snapshot) -> bool {
    let index = Index::new(snapshot);
    world.instances.iter().all(|instance| {
        let actors: Vec<&ActorId> = instance.actors.iter().map(|actor| &ids[*actor]).collect();
        policy.holds_for(&index, instance.rule, &actors, node_of(instance.server))
    })
}

fn node_of(actor: Option<usize>) -> NodeId {
    NodeId(actor.map_or(0, |actor| actor as u64 + 1))
}

struct Maker<'a> {
    space: &'a Space,
    unit_seconds: f64,
    any_kind: ActorType,
    snapshot: Snapshot,
    ids: Vec<ActorId>,
}

impl Maker<'_> {
    fn value(&self, key: Key) -> Option<f64> {
        self.space.ranges.get(&key).map(|(range, _)| range.example())
    }

    /// Each actor has its own server; one more is for rules without actors.
    fn servers_and_actors(&mut self) {
        let actors = (0..self.ids.len()).map(Some);
        for actor in std::iter::once(None).chain(actors) {
            let node = node_of(actor);
            let mut usage = PerResource::<Usage>::default();
            let mut used = PerResource::<f64>::default();
            for resource in Resource::ALL {
                (usage[resource], used[resource]) = self.usage(actor, resource);
            }
            self.snapshot.servers.push(ServerStats {
                node,
                state: ServerState::Active,
                usage,
                cpu_demand: usage.cpu.used,
                actors: u64::from(actor.is_some()),
            });
            if let Some(actor) = actor {
                let id = self.ids[actor].clone();
                self.list(id, node, used);
            }
        }
    }

    /// The use of a server and of the actor on it.
    fn usage(&self, actor: Option<usize>, resource: Resource) -> (Usage, f64) {
        let server = |statistic| self.value(Key::Server(actor, resource, statistic));
        let own = |statistic| actor.and_then(|actor| self.value(Key::Actor(actor, resource, statistic)));
        let (server_perc, server_size) = (server(Statistic::Perc), server(Statistic::Size));
        let (own_perc, own_size) = (own(Statistic::Perc), own(Statistic::Size));
        let forced = |size: Option<f64>, perc: Option<f64>| {
            let (size, perc) = (size?, perc?);
            (size > 0.0 && perc > 0.0).then(|| 100.0 * size / perc)
        };
        let capacity = forced(server_size, server_perc)
            .or(forced(own_size, own_perc))
            .unwrap_or(CAPACITY);
        let of = |size: Option<f64>, perc: Option<f64>| size.or(perc.map(|perc| perc * capacity / 100.0));
        let usage = Usage {
            used: of(server_size, server_perc).unwrap_or(0.0),
            capacity: Some(capacity),
        };
        (usage, of(own_size, own_perc).unwrap_or(0.0))
    }

    fn list(&mut self, actor: ActorId, node: NodeId, used: PerResource<f64>) {
        self.snapshot.actors.push(ActorStats {
            functions: Vec::new(),
            actor,
            node,
            since: Time::ZERO,
            used,
            calls_in: Vec::new(),
            calls_out: Vec::new(),
            references: Vec::new(),
        });
    }

    fn calls(&mut self) {
        let mut wanted: BTreeMap<(WorldCaller, usize, Method), ()> = BTreeMap::new();
        for key in self.space.ranges.keys() {
            if let Key::Calls(caller, callee, method, _) = key {
                wanted.insert((*caller, *callee, *method), ());
            }
        }
        for (caller, callee, method) in wanted.into_keys() {
            self.calls_of(caller, callee, method);
        }
    }

    fn calls_of(&mut self, caller: WorldCaller, callee: usize, method: Method) {
        let value = |statistic| self.value(Key::Calls(caller, callee, method, statistic));
        let per_period = PERIOD.as_secs_f64() / self.unit_seconds;
        let share = value(Statistic::Perc);
        let count = match (value(Statistic::Count), share) {
            (Some(count), _) => (count * per_period).ceil(),
            (None, Some(0.0)) => 0.0,
            (None, _) => CALLS,
        };
        let bytes = count * value(Statistic::Size).unwrap_or(0.0);
        let caller_of_calls = match caller {
            WorldCaller::Client => Caller::Client(NodeId(EXTRA_KEYS)),
            WorldCaller::Actor(actor) => Caller::Actor(self.ids[actor].clone()),
            WorldCaller::Kind(kind) => Caller::Actor(ActorId::new(kind.unwrap_or(self.any_kind), EXTRA_KEYS)),
        };
        let call = |caller, count: f64, bytes: f64| CallIn {
            caller,
            method,
            count: count as u64,
            bytes: bytes as u64,
            node: None,
        };
        self.snapshot.actors[callee]
            .calls_in
            .push(call(caller_of_calls.clone(), count, bytes));
        // Another actor of the type on the same server receives the remaining calls.
        let rest = match share {
            Some(share) if share > 0.0 => (100.0 * count / share).round() - count,
            Some(_) => CALLS,
            None => 0.0,
        };
        if rest > 0.0 {
            let kind = self.ids[callee].kind;
            let key = EXTRA_KEYS + self.snapshot.actors.len() as u64;
            let node = self.snapshot.actors[callee].node;
            self.list(ActorId::new(kind, key), node, PerResource::default());
            let extra = self.snapshot.actors.last_mut().expect("it was just listed");
            extra.calls_in.push(call(caller_of_calls, rest, 0.0));
        }
    }

    fn references(&mut self, policy: &Policy, world: &World) {
        for (index, atom) in &self.space.references {
            let instance = &world.instances[*index];
            if let Atom::Refers {
                target,
                holder,
                property,
                ..
            } = &policy.rules[instance.rule].atoms[*atom]
            {
                self.snapshot.actors[instance.actors[*holder]]
                    .references
                    .push(References {
                        property: *property,
                        actors: vec![self.ids[instance.actors[*target]].clone()],
                    });
            }
        }
    }
}
