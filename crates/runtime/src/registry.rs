//! All seats of a node, by actor.

use std::hash::BuildHasher;
use std::sync::Arc;

use elastin_types::ActorId;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use parking_lot::RwLock;

use crate::any_seat::AnySeat;

/// How many parts the table has, so that threads rarely meet at one lock.
const SHARDS: usize = 64;

/// All seats of a node. The table has only pointers: the key is in the seat.
pub(crate) struct Registry {
    shards: Vec<RwLock<HashTable<Arc<dyn AnySeat>>>>,
    hasher: FixedState,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::new(HashTable::new())).collect(),
            hasher: FixedState::default(),
        }
    }

    /// The seat of an actor, if there is one.
    pub(crate) fn get(&self, actor: &ActorId) -> Option<Arc<dyn AnySeat>> {
        let hash = self.hasher.hash_one(actor);
        let shard = self.shard(hash).read();
        shard.find(hash, |seat| seat.id() == actor).cloned()
    }

    /// The seat of an actor, made if there is none.
    pub(crate) fn get_or_insert(&self, actor: &ActorId, make: impl FnOnce() -> Arc<dyn AnySeat>) -> Arc<dyn AnySeat> {
        if let Some(seat) = self.get(actor) {
            return seat;
        }
        let hash = self.hasher.hash_one(actor);
        let hasher = &self.hasher;
        let mut shard = self.shard(hash).write();
        let entry = shard.entry(hash, |seat| seat.id() == actor, |seat| hasher.hash_one(seat.id()));
        entry.or_insert_with(make).get().clone()
    }

    /// Shows every seat, without holding a lock while it is looked at.
    pub(crate) fn each(&self, mut look: impl FnMut(&Arc<dyn AnySeat>)) {
        for shard in &self.shards {
            let seats: Vec<_> = shard.read().iter().cloned().collect();
            seats.iter().for_each(&mut look);
        }
    }

    /// Forgets the seats that nobody refers to and that have no activation.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            // With the shard locked, nobody can come by a seat that only the table has.
            shard
                .write()
                .retain(|seat| Arc::strong_count(seat) > 1 || !seat.is_empty());
        }
    }

    /// Takes every seat out.
    pub(crate) fn drain(&self) -> Vec<Arc<dyn AnySeat>> {
        self.shards
            .iter()
            .flat_map(|shard| std::mem::take(&mut *shard.write()))
            .collect()
    }

    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<dyn AnySeat>>> {
        // The table itself uses the top seven bits and the low ones.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}
