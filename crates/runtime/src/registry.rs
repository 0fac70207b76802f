//! All seats of a node, by actor.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use elastin_actor::{Handlers, Seat};
use elastin_types::{ActorId, ActorType};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use parking_lot::RwLock;

use crate::any_seat::AnySeat;
use crate::seat::ActorSeat;
use crate::shared::Shared;

/// How many parts a table has, so that threads rarely meet at one lock. They are of different sizes: a few of them have just
/// doubled at any time, never all of them.
const SHARDS: usize = 64;

/// All seats of a node. Each actor type has a table of its own, in which a pointer takes half of what one to a seat of any type
/// would.
pub(crate) struct Registry {
    types: BTreeMap<ActorType, Box<dyn AnySeats>>,
}

/// The seats of one type, whatever that is.
pub(crate) trait AnySeats: Send + Sync {
    fn get(&self, actor: &ActorId) -> Option<Arc<dyn AnySeat>>;

    fn get_or_insert(&self, actor: &ActorId, shared: &dyn Fn() -> Arc<Shared>) -> Arc<dyn AnySeat>;

    /// Shows every seat, without holding a lock while it is looked at.
    fn each(&self, look: &mut dyn FnMut(&Arc<dyn AnySeat>));

    /// Forgets the seats that nobody refers to and that have no activation.
    fn sweep(&self);

    /// Takes every seat out.
    fn drain(&self) -> Vec<Arc<dyn AnySeat>>;
}

/// The seats of one type. The table has only pointers: the key is in the seat.
struct Seats<A: Handlers> {
    shards: Vec<RwLock<HashTable<Arc<ActorSeat<A>>>>>,
}

/// A table for the seats of a type.
pub(crate) fn seats_of<A: Handlers>() -> Box<dyn AnySeats> {
    let shards = (0..SHARDS).map(|_| RwLock::new(HashTable::new())).collect();
    Box::new(Seats::<A> { shards })
}

fn hash(actor: &ActorId) -> u64 {
    FixedState::default().hash_one(actor)
}

/// Which part of a table a hash belongs to. The last one gets about twice as much as the first.
fn shard_of(hash: u64) -> usize {
    // The hash tables themselves use the top seven bits and the low ones.
    let (one, other, dice) = (hash >> 32, hash >> 38, hash >> 44);
    let (one, other) = (one as usize % SHARDS, other as usize % SHARDS);
    match dice % 3 {
        0 => one.max(other),
        _ => one,
    }
}

impl Registry {
    pub(crate) fn new(types: BTreeMap<ActorType, Box<dyn AnySeats>>) -> Self {
        Self { types }
    }

    /// The seat of an actor, if there is one.
    pub(crate) fn get(&self, actor: &ActorId) -> Option<Arc<dyn AnySeat>> {
        self.types.get(&actor.kind)?.get(actor)
    }

    /// The seat of an actor, made if there is none; `None` for a type that is not registered.
    pub(crate) fn get_or_insert(&self, actor: &ActorId, shared: impl Fn() -> Arc<Shared>) -> Option<Arc<dyn AnySeat>> {
        Some(self.types.get(&actor.kind)?.get_or_insert(actor, &shared))
    }

    /// Shows every seat, without holding a lock while it is looked at.
    pub(crate) fn each(&self, mut look: impl FnMut(&Arc<dyn AnySeat>)) {
        self.types.values().for_each(|seats| seats.each(&mut look));
    }

    /// Forgets the seats that nobody refers to and that have no activation.
    pub(crate) fn sweep(&self) {
        self.types.values().for_each(|seats| seats.sweep());
    }

    /// Takes every seat out.
    pub(crate) fn drain(&self) -> Vec<Arc<dyn AnySeat>> {
        self.types.values().flat_map(|seats| seats.drain()).collect()
    }
}

impl<A: Handlers> Seats<A> {
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<ActorSeat<A>>>> {
        &self.shards[shard_of(hash)]
    }

    fn find(&self, hash: u64, actor: &ActorId) -> Option<Arc<ActorSeat<A>>> {
        let shard = self.shard(hash).read();
        shard.find(hash, |seat| seat.is_of(actor)).cloned()
    }
}

impl<A: Handlers> AnySeats for Seats<A> {
    fn get(&self, actor: &ActorId) -> Option<Arc<dyn AnySeat>> {
        self.find(hash(actor), actor).map(|seat| seat as Arc<dyn AnySeat>)
    }

    fn get_or_insert(&self, actor: &ActorId, shared: &dyn Fn() -> Arc<Shared>) -> Arc<dyn AnySeat> {
        let its_hash = hash(actor);
        if let Some(seat) = self.find(its_hash, actor) {
            return seat;
        }
        let mut shard = self.shard(its_hash).write();
        let entry = shard.entry(its_hash, |seat| seat.is_of(actor), |seat| hash(&seat.id()));
        let make = || ActorSeat::make(actor, shared());
        entry.or_insert_with(make).get().clone()
    }

    fn each(&self, look: &mut dyn FnMut(&Arc<dyn AnySeat>)) {
        for shard in &self.shards {
            let seats: Vec<_> = shard.read().iter().cloned().collect();
            seats.into_iter().for_each(|seat| look(&(seat as Arc<dyn AnySeat>)));
        }
    }

    fn sweep(&self) {
        for shard in &self.shards {
            // With the shard locked, nobody can come by a seat that only the table has.
            shard
                .write()
                .retain(|seat| Arc::strong_count(seat) > 1 || !seat.is_empty());
        }
    }

    fn drain(&self) -> Vec<Arc<dyn AnySeat>> {
        let seats = self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.write()));
        seats.map(|seat| seat as Arc<dyn AnySeat>).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_sizes_up_to_twice_as_large() {
        let mut sizes = [0_u32; SHARDS];
        for key in 0..1_000_000_u64 {
            sizes[shard_of(hash(&ActorId::new(ActorType::of("Folder"), key)))] += 1;
        }
        assert!(sizes[0] * 19 / 10 < sizes[SHARDS - 1], "{sizes:?}");
        assert!(sizes[SHARDS - 1] < sizes[0] * 21 / 10, "{sizes:?}");
    }
}
