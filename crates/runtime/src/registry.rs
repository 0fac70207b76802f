//! All cells of a node, by actor.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use elastin_actor::{CellHandle, Handlers};
use elastin_types::{ActorId, ActorType};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use parking_lot::RwLock;

use crate::cell::ActorCell;
use crate::cell::erased::ErasedCell;
use crate::inner::RuntimeInner;
use crate::tuning::REGISTRY_SHARDS;

/// All cells of a node. Each actor type has its own table, whose thin pointers take half the room of pointers to
/// type-erased cells.
pub(crate) struct Registry {
    types: BTreeMap<ActorType, Box<dyn ErasedCells>>,
}

/// The cells of one actor type, type-erased.
pub(crate) trait ErasedCells: Send + Sync {
    fn get(&self, actor: &ActorId) -> Option<Arc<dyn ErasedCell>>;

    fn get_or_insert(&self, actor: &ActorId, runtime: &dyn Fn() -> Arc<RuntimeInner>) -> Arc<dyn ErasedCell>;

    /// Calls `f` for every cell, without holding a lock.
    fn each(&self, f: &mut dyn FnMut(&Arc<dyn ErasedCell>));

    /// Removes inactive cells that have no references.
    fn sweep(&self);

    /// Takes all cells.
    fn drain(&self) -> Vec<Arc<dyn ErasedCell>>;
}

/// The cells of one type. The table holds only pointers: the key is in the cell.
struct Cells<A: Handlers> {
    shards: Vec<RwLock<HashTable<Arc<ActorCell<A>>>>>,
}

/// Creates the table of an actor type.
pub(crate) fn cells_of<A: Handlers>() -> Box<dyn ErasedCells> {
    let shards = (0..REGISTRY_SHARDS).map(|_| RwLock::new(HashTable::new())).collect();
    Box::new(Cells::<A> { shards })
}

fn hash(actor: &ActorId) -> u64 {
    FixedState::default().hash_one(actor)
}

/// The shard of a hash. The last shard gets about twice as many cells as the first.
fn shard_of(hash: u64) -> usize {
    // The hash tables themselves use the top seven bits and the low ones.
    let (one, other, selector) = (hash >> 32, hash >> 38, hash >> 44);
    let (one, other) = (one as usize % REGISTRY_SHARDS, other as usize % REGISTRY_SHARDS);
    match selector % 3 {
        0 => one.max(other),
        _ => one,
    }
}

impl Registry {
    pub(crate) fn new(types: BTreeMap<ActorType, Box<dyn ErasedCells>>) -> Self {
        Self { types }
    }

    /// The cell of an actor, if there is one.
    pub(crate) fn get(&self, actor: &ActorId) -> Option<Arc<dyn ErasedCell>> {
        self.types.get(&actor.kind)?.get(actor)
    }

    /// The cell of an actor, created if there is none; `None` if the type is not registered.
    pub(crate) fn get_or_insert(
        &self,
        actor: &ActorId,
        runtime: impl Fn() -> Arc<RuntimeInner>,
    ) -> Option<Arc<dyn ErasedCell>> {
        Some(self.types.get(&actor.kind)?.get_or_insert(actor, &runtime))
    }

    /// Calls `f` for every cell, without holding a lock.
    pub(crate) fn each(&self, mut f: impl FnMut(&Arc<dyn ErasedCell>)) {
        self.types.values().for_each(|cells| cells.each(&mut f));
    }

    /// Removes inactive cells that have no references.
    pub(crate) fn sweep(&self) {
        self.types.values().for_each(|cells| cells.sweep());
    }

    /// Takes all cells.
    pub(crate) fn drain(&self) -> Vec<Arc<dyn ErasedCell>> {
        self.types.values().flat_map(|cells| cells.drain()).collect()
    }
}

impl<A: Handlers> Cells<A> {
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Arc<ActorCell<A>>>> {
        &self.shards[shard_of(hash)]
    }

    fn find(&self, hash: u64, actor: &ActorId) -> Option<Arc<ActorCell<A>>> {
        let shard = self.shard(hash).read();
        shard.find(hash, |cell| cell.is_of(actor)).cloned()
    }
}

impl<A: Handlers> ErasedCells for Cells<A> {
    fn get(&self, actor: &ActorId) -> Option<Arc<dyn ErasedCell>> {
        self.find(hash(actor), actor).map(|cell| cell as Arc<dyn ErasedCell>)
    }

    fn get_or_insert(&self, actor: &ActorId, runtime: &dyn Fn() -> Arc<RuntimeInner>) -> Arc<dyn ErasedCell> {
        let key_hash = hash(actor);
        if let Some(cell) = self.find(key_hash, actor) {
            return cell;
        }
        let mut shard = self.shard(key_hash).write();
        let entry = shard.entry(key_hash, |cell| cell.is_of(actor), |cell| hash(&cell.id()));
        let make = || ActorCell::make(actor, runtime());
        entry.or_insert_with(make).get().clone()
    }

    fn each(&self, f: &mut dyn FnMut(&Arc<dyn ErasedCell>)) {
        for shard in &self.shards {
            let cells: Vec<_> = shard.read().iter().cloned().collect();
            cells.into_iter().for_each(|cell| f(&(cell as Arc<dyn ErasedCell>)));
        }
    }

    fn sweep(&self) {
        for shard in &self.shards {
            // While the shard is locked, no thread can obtain a cell that only the table refers to.
            shard
                .write()
                .retain(|cell| Arc::strong_count(cell) > 1 || !cell.is_empty());
        }
    }

    fn drain(&self) -> Vec<Arc<dyn ErasedCell>> {
        let cells = self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.write()));
        cells.map(|cell| cell as Arc<dyn ErasedCell>).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_sizes_differ_by_up_to_a_factor_of_two() {
        let mut sizes = [0_u32; REGISTRY_SHARDS];
        for key in 0..1_000_000_u64 {
            sizes[shard_of(hash(&ActorId::new(ActorType::of("Folder"), key)))] += 1;
        }
        assert!(sizes[0] * 19 / 10 < sizes[REGISTRY_SHARDS - 1], "{sizes:?}");
        assert!(sizes[REGISTRY_SHARDS - 1] < sizes[0] * 21 / 10, "{sizes:?}");
    }
}
