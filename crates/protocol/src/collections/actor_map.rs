//! A compact map by actor. Its overhead stays low even in many small maps: a directory has one for each slot.

use elastin_types::{ActorId, ActorType, Key, TenantId};

use crate::collections::key_map::KeyMap;

/// A map by actor, iterated in an unspecified but deterministic order.
#[derive(Debug)]
pub(crate) struct ActorMap<Value>(KeyMap<(TenantId, ActorType), Value>);

impl<Value> Default for ActorMap<Value> {
    fn default() -> Self {
        Self(KeyMap::default())
    }
}

fn actor((tenant, kind): (TenantId, ActorType), key: Key) -> ActorId {
    ActorId { tenant, kind, key }
}

impl<Value> ActorMap<Value> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, actor: &ActorId) -> Option<&Value> {
        self.0.get((actor.tenant, actor.kind), &actor.key)
    }

    pub(crate) fn get_mut(&mut self, actor: &ActorId) -> Option<&mut Value> {
        self.0.get_mut((actor.tenant, actor.kind), &actor.key)
    }

    /// Sets the value of an actor.
    pub(crate) fn insert(&mut self, actor: &ActorId, value: Value) {
        self.0.insert((actor.tenant, actor.kind), &actor.key, value);
    }

    pub(crate) fn remove(&mut self, actor: &ActorId) -> Option<Value> {
        self.0.remove((actor.tenant, actor.kind), &actor.key)
    }

    /// Keeps the entries for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: &mut impl FnMut(&Value) -> bool) {
        self.0.retain(keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ActorId, &Value)> {
        self.0.iter().map(|(scope, key, value)| (actor(scope, key), value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.values()
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (ActorId, Value)> {
        let entries = self.0.into_iter();
        entries.map(|(scope, key, value)| (actor(scope, key), value))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The allocated bytes, ids included.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Actors with every kind of key, of two tenants and two types.
    pub(crate) fn actors() -> impl Iterator<Item = ActorId> {
        let keys = [
            Key::from(1),
            Key::from(2),
            Key::from([1; 16]),
            Key::from("1"),
            Key::from(""),
            Key::from("a string that is not short"),
        ];
        let types = [(0, "Folder"), (0, "File"), (1, "Folder"), (1, "File")];
        types.into_iter().flat_map(move |(tenant, name)| {
            let scope = (TenantId(tenant), ActorType::of(name));
            keys.clone().map(|key| actor(scope, key))
        })
    }

    #[test]
    fn behaves_like_a_btree_map_for_every_kind_of_key() {
        let (mut ours, mut theirs) = (ActorMap::default(), BTreeMap::new());
        for (number, actor) in actors().enumerate() {
            assert_eq!(ours.get(&actor), None);
            ours.insert(&actor, number);
            theirs.insert(actor, number);
        }
        for (actor, number) in &mut theirs {
            assert_eq!(ours.get(actor), Some(&*number));
            *ours.get_mut(actor).expect("the actor was inserted") += 100;
            *number += 100;
        }
        let seen: BTreeMap<_, _> = ours.iter().map(|(actor, number)| (actor, *number)).collect();
        assert_eq!(seen, theirs);
        let gone = theirs.keys().next().expect("the map is not empty").clone();
        assert_eq!(ours.remove(&gone), theirs.remove(&gone));
        ours.retain(&mut |number| number % 2 == 0);
        theirs.retain(|_, number| *number % 2 == 0);
        assert_eq!(
            (ours.len(), ours.values().sum::<usize>()),
            (theirs.len(), theirs.values().sum())
        );
        assert_eq!(ours.into_iter().collect::<BTreeMap<_, _>>(), theirs);
    }
}
