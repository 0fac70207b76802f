//! An index over the actors, calls and references of a snapshot, built in linear time.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;

use elastin_types::{
    ActorId, ActorStats, ActorType, Caller, Method, NodeId, Property, Resource, ServerStats, Snapshot, Usage,
};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::csr::Rows;
use crate::{ActorIndex, Calls, Edge, Facts};

/// An indexed snapshot. Listed actors have the lowest numbers, in snapshot order.
pub struct Index<'a> {
    period: Duration,
    servers: BTreeMap<NodeId, &'a ServerStats>,
    listed: Vec<&'a ActorStats>,
    // Compact copies: lookups that follow references into the snapshot would mostly miss the cache.
    ids: Vec<ActorId>,
    numbers: HashTable<ActorIndex>,
    hasher: FixedState,
    all: Vec<ActorIndex>,
    by_kind: BTreeMap<ActorType, Vec<ActorIndex>>,
    /// For each listed actor and property, its range in `references`.
    holders: Rows<(Property, u32, u32)>,
    references: Vec<ActorIndex>,
    referrers: Rows<(Property, ActorIndex)>,
    calls_in: Rows<Edge>,
    calls_out: Rows<Edge>,
    client_calls: Rows<(Method, Calls)>,
}

impl<'a> Index<'a> {
    /// Indexes a snapshot. Of an actor that is listed twice, the first entry counts.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut index = Self {
            period: snapshot.period,
            servers: BTreeMap::new(),
            listed: Vec::with_capacity(snapshot.actors.len()),
            ids: Vec::with_capacity(snapshot.actors.len()),
            numbers: HashTable::with_capacity(snapshot.actors.len()),
            hasher: FixedState::default(),
            all: Vec::new(),
            by_kind: BTreeMap::new(),
            holders: Rows::default(),
            references: Vec::new(),
            referrers: Rows::default(),
            calls_in: Rows::default(),
            calls_out: Rows::default(),
            client_calls: Rows::default(),
        };
        for server in &snapshot.servers {
            index.servers.entry(server.node).or_insert(server);
        }
        for stats in &snapshot.actors {
            let known = index.ids.len();
            if index.number(&stats.actor).0 as usize == known {
                index.listed.push(stats);
            }
        }
        index.all = (0..index.listed.len()).map(number).collect();
        for actor in &index.all {
            let kind = index.ids[actor.0 as usize].kind;
            index.by_kind.entry(kind).or_default().push(*actor);
        }
        index.add_references();
        index.add_calls();
        index
    }

    /// The number of an actor, assigned on first use.
    fn number(&mut self, actor: &ActorId) -> ActorIndex {
        let Self {
            ids, numbers, hasher, ..
        } = self;
        let hash = hasher.hash_one(actor);
        let same = |known: &ActorIndex| ids[known.0 as usize] == *actor;
        match numbers.entry(hash, same, |known| hasher.hash_one(&ids[known.0 as usize])) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                let next = number(ids.len());
                vacant.insert(next);
                ids.push(actor.clone());
                next
            }
        }
    }

    fn add_references(&mut self) {
        let mut holders: Vec<(u32, (Property, u32, u32))> = Vec::new();
        let mut referrers: Vec<(u32, (Property, ActorIndex))> = Vec::new();
        for holder in 0..self.listed.len() {
            let stats = self.listed[holder];
            let mut targets: Vec<(Property, ActorIndex)> = Vec::new();
            for references in &stats.references {
                for target in &references.actors {
                    targets.push((references.property, self.number(target)));
                }
            }
            targets.sort_unstable();
            targets.dedup();
            for group in targets.chunk_by(|one, other| one.0 == other.0) {
                let start = self.references.len();
                self.references.extend(group.iter().map(|(_, target)| *target));
                let row = (group[0].0, number(start).0, number(self.references.len()).0);
                holders.push((number(holder).0, row));
            }
            referrers.extend(
                targets
                    .iter()
                    .map(|(property, target)| (target.0, (*property, number(holder)))),
            );
        }
        self.holders = Rows::new(self.listed.len(), holders.into_iter());
        self.referrers = Rows::new(self.ids.len(), referrers.into_iter());
    }

    /// The callee's record takes precedence; calls recorded only by the caller are added. Each side keeps just its
    /// heaviest peers, and a listed actor may have an unlisted peer.
    fn add_calls(&mut self) {
        let listed = self.listed.clone();
        let edges = listed.iter().map(|stats| stats.calls_in.len()).sum();
        let mut recorded = Rows::with_capacity(listed.len(), edges);
        self.client_calls = Rows::with_capacity(listed.len(), 0);
        for callee in &listed {
            let incoming = callee.calls_in.iter().filter_map(|call| match &call.caller {
                Caller::Client(_) => None,
                Caller::Actor(caller) => Some(Edge {
                    peer: self.number(caller),
                    method: call.method,
                    calls: calls(call.count, call.bytes),
                }),
            });
            recorded.push_row(incoming, edge_key, merge_edges);
            let clients = callee.calls_in.iter().filter_map(|call| match &call.caller {
                Caller::Client(_) => Some((call.method, calls(call.count, call.bytes))),
                Caller::Actor(_) => None,
            });
            let merge = |one: &mut (Method, Calls), other: &(Method, Calls)| one.1 += other.1;
            self.client_calls.push_row(clients, |entry| entry.0, merge);
        }
        let mut only_by_caller: Vec<(u32, Edge)> = Vec::new();
        for (caller, stats) in listed.iter().enumerate() {
            let peer = number(caller);
            for call in &stats.calls_out {
                let callee = self.number(&call.callee);
                // The row of an unlisted actor is empty.
                if find_edge(recorded.row(callee.0 as usize), peer, call.method).is_none() {
                    let edge = Edge {
                        peer,
                        method: call.method,
                        calls: calls(call.count, call.bytes),
                    };
                    only_by_caller.push((callee.0, edge));
                }
            }
        }
        self.calls_in = if only_by_caller.is_empty() {
            recorded
        } else {
            let added = Rows::new(self.ids.len(), only_by_caller.iter().copied());
            let mut both = Rows::with_capacity(self.ids.len(), edges + only_by_caller.len());
            for callee in 0..self.ids.len() {
                let row = recorded.row(callee).iter().chain(added.row(callee)).copied();
                both.push_row(row, edge_key, merge_edges);
            }
            both
        };
        let outgoing = self.calls_in.iter().map(|(callee, edge)| {
            let peer = ActorIndex(callee);
            (edge.peer.0, Edge { peer, ..*edge })
        });
        // Rows are ordered by peer and function because insertion is by callee, then caller and function.
        self.calls_out = Rows::new(self.ids.len(), outgoing);
    }
}

fn calls(count: u64, bytes: u64) -> Calls {
    Calls { count, bytes }
}

/// # Panics
/// If there are 2³² or more actors or references.
fn number(index: usize) -> ActorIndex {
    ActorIndex(u32::try_from(index).expect("a snapshot has fewer than 2^32 entries"))
}

fn edge_key(edge: &Edge) -> (ActorIndex, Method) {
    (edge.peer, edge.method)
}

fn merge_edges(one: &mut Edge, other: &Edge) {
    one.calls += other.calls;
}

/// The calls with one peer and function, among edges ordered by peer and function.
pub(crate) fn find_edge(edges: &[Edge], peer: ActorIndex, method: Method) -> Option<Calls> {
    let found = edges.binary_search_by_key(&(peer, method), edge_key).ok()?;
    Some(edges[found].calls)
}

impl Facts for Index<'_> {
    fn period(&self) -> Duration {
        self.period
    }

    fn servers(&self) -> impl Iterator<Item = NodeId> {
        self.servers.keys().copied()
    }

    fn usage(&self, node: NodeId, resource: Resource) -> Option<Usage> {
        self.servers.get(&node).map(|server| server.usage[resource])
    }

    fn listed(&self, kind: Option<ActorType>) -> &[ActorIndex] {
        match kind {
            None => &self.all,
            Some(kind) => self.by_kind.get(&kind).map_or(&[], Vec::as_slice),
        }
    }

    fn find(&self, actor: &ActorId) -> Option<ActorIndex> {
        let same = |known: &ActorIndex| self.ids[known.0 as usize] == *actor;
        self.numbers.find(self.hasher.hash_one(actor), same).copied()
    }

    fn id(&self, actor: ActorIndex) -> &ActorId {
        &self.ids[actor.0 as usize]
    }

    fn node(&self, actor: ActorIndex) -> Option<NodeId> {
        self.listed.get(actor.0 as usize).map(|stats| stats.node)
    }

    fn used(&self, actor: ActorIndex, resource: Resource) -> Option<f64> {
        self.listed.get(actor.0 as usize).map(|stats| stats.used[resource])
    }

    fn references(&self, holder: ActorIndex, property: Property) -> &[ActorIndex] {
        self.holders
            .row(holder.0 as usize)
            .iter()
            .find(|(own, ..)| *own == property)
            .map_or(&[], |(_, start, end)| &self.references[*start as usize..*end as usize])
    }

    fn referrers(&self, target: ActorIndex) -> &[(Property, ActorIndex)] {
        self.referrers.row(target.0 as usize)
    }

    fn calls_in(&self, callee: ActorIndex) -> &[Edge] {
        self.calls_in.row(callee.0 as usize)
    }

    fn calls_out(&self, caller: ActorIndex) -> &[Edge] {
        self.calls_out.row(caller.0 as usize)
    }

    fn client_calls(&self, callee: ActorIndex, method: Method) -> Calls {
        let row = self.client_calls.row(callee.0 as usize);
        row.binary_search_by_key(&method, |entry| entry.0)
            .map_or(Calls::default(), |found| row[found].1)
    }
}
