//! A map of a node's hosted actors: very many actors of few types.
//!
//! Nearly all of them belong to the default tenant. Its actors have one map per type, so that their entries need not
//! store the tenant and the type.

use std::collections::BTreeMap;
use std::ops::Index;

use elastin_types::{ActorId, ActorType, TenantId};

use crate::collections::actor_map::ActorMap;
use crate::collections::key_map::KeyMap;

/// The tenant with one map per actor type. Other tenants may have very few actors of a type.
const DEFAULT_TENANT: TenantId = TenantId(0);

/// A map by actor, iterated in an unspecified but deterministic order.
#[derive(Debug)]
pub(crate) struct HostMap<Value> {
    /// INVARIANT: no inner map is empty, which bounds their number by the hosted actor types.
    by_type: BTreeMap<ActorType, KeyMap<(), Value>>,
    others: ActorMap<Value>,
}

impl<Value> Default for HostMap<Value> {
    fn default() -> Self {
        Self {
            by_type: BTreeMap::new(),
            others: ActorMap::default(),
        }
    }
}

impl<Value> HostMap<Value> {
    pub(crate) fn len(&self) -> usize {
        self.by_type.values().map(KeyMap::len).sum::<usize>() + self.others.len()
    }

    pub(crate) fn get(&self, actor: &ActorId) -> Option<&Value> {
        match actor.tenant {
            DEFAULT_TENANT => self.by_type.get(&actor.kind)?.get((), &actor.key),
            _ => self.others.get(actor),
        }
    }

    pub(crate) fn get_mut(&mut self, actor: &ActorId) -> Option<&mut Value> {
        match actor.tenant {
            DEFAULT_TENANT => self.by_type.get_mut(&actor.kind)?.get_mut((), &actor.key),
            _ => self.others.get_mut(actor),
        }
    }

    /// Sets the value of an actor.
    pub(crate) fn insert(&mut self, actor: &ActorId, value: Value) {
        match actor.tenant {
            DEFAULT_TENANT => self
                .by_type
                .entry(actor.kind)
                .or_default()
                .insert((), &actor.key, value),
            _ => self.others.insert(actor, value),
        }
    }

    pub(crate) fn remove(&mut self, actor: &ActorId) -> Option<Value> {
        if actor.tenant != DEFAULT_TENANT {
            return self.others.remove(actor);
        }
        let of_type = self.by_type.get_mut(&actor.kind)?;
        let removed = of_type.remove((), &actor.key);
        if of_type.len() == 0 {
            self.by_type.remove(&actor.kind);
        }
        removed
    }

    /// Keeps the entries for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        self.by_type.retain(|_, of_type| {
            of_type.retain(&mut keep);
            of_type.len() > 0
        });
        self.others.retain(&mut keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ActorId, &Value)> {
        let default_tenant = self.by_type.iter().flat_map(|(&kind, of_type)| {
            let tenant = DEFAULT_TENANT;
            let entries = of_type.iter();
            entries.map(move |((), key, value)| (ActorId { tenant, kind, key }, value))
        });
        default_tenant.chain(self.others.iter())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let default_tenant = self.by_type.values().flat_map(KeyMap::values);
        default_tenant.chain(self.others.values())
    }
}

impl<Value> Index<&ActorId> for HostMap<Value> {
    type Output = Value;

    /// # Panics
    /// If the map does not contain the actor.
    fn index(&self, actor: &ActorId) -> &Value {
        self.get(actor).expect("the map contains the actor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::actor_map::tests::actors;

    #[test]
    fn behaves_like_a_btree_map_for_every_kind_of_key() {
        let (mut ours, mut theirs) = (HostMap::default(), BTreeMap::new());
        for (number, actor) in actors().enumerate() {
            assert_eq!(ours.get(&actor), None);
            ours.insert(&actor, number);
            theirs.insert(actor, number);
        }
        for (actor, number) in &mut theirs {
            assert_eq!(ours[actor], *number);
            *ours.get_mut(actor).expect("the actor was inserted") += 100;
            *number += 100;
        }
        let gone = theirs.keys().next().expect("the map is not empty").clone();
        assert_eq!(ours.remove(&gone), theirs.remove(&gone));
        assert_eq!(ours.remove(&gone), None);
        ours.retain(|number| number % 2 == 0);
        theirs.retain(|_, number| *number % 2 == 0);
        assert_eq!(
            (ours.len(), ours.values().sum::<usize>()),
            (theirs.len(), theirs.values().sum())
        );
        let seen: BTreeMap<_, _> = ours.iter().map(|(actor, number)| (actor, *number)).collect();
        assert_eq!(seen, theirs);
        for actor in theirs.keys() {
            assert!(ours.remove(actor).is_some());
        }
        assert_eq!((ours.len(), ours.by_type.len()), (0, 0));
    }
}
