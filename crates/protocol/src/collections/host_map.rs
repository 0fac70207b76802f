//! A map by actor for what a node hosts: one map, with very many actors of few types.
//!
//! Nearly all of them belong to the default tenant. Those of a type have a map of their own here, so that their entries need not send
//! whose they are and of which type.

use std::collections::BTreeMap;
use std::ops::Index;

use elastin_types::{ActorId, ActorType, TenantId};

use crate::collections::actor_map::ActorMap;
use crate::collections::key_map::KeyMap;

/// The tenant whose actors have maps of their own. Others may have very few of a type.
const USUAL: TenantId = TenantId(0);

/// A map by actor, in no particular but always the same order.
#[derive(Debug)]
pub(crate) struct HostMap<Value> {
    /// INVARIANT: none of them is empty, so that there are no more than types of actors that are here.
    usual: BTreeMap<ActorType, KeyMap<(), Value>>,
    others: ActorMap<Value>,
}

impl<Value> Default for HostMap<Value> {
    fn default() -> Self {
        Self {
            usual: BTreeMap::new(),
            others: ActorMap::default(),
        }
    }
}

impl<Value> HostMap<Value> {
    pub(crate) fn len(&self) -> usize {
        self.usual.values().map(KeyMap::len).sum::<usize>() + self.others.len()
    }

    pub(crate) fn get(&self, actor: &ActorId) -> Option<&Value> {
        match actor.tenant {
            USUAL => self.usual.get(&actor.kind)?.get((), &actor.key),
            _ => self.others.get(actor),
        }
    }

    pub(crate) fn get_mut(&mut self, actor: &ActorId) -> Option<&mut Value> {
        match actor.tenant {
            USUAL => self.usual.get_mut(&actor.kind)?.get_mut((), &actor.key),
            _ => self.others.get_mut(actor),
        }
    }

    /// Sets what is known of an actor.
    pub(crate) fn insert(&mut self, actor: &ActorId, value: Value) {
        match actor.tenant {
            USUAL => self.usual.entry(actor.kind).or_default().insert((), &actor.key, value),
            _ => self.others.insert(actor, value),
        }
    }

    pub(crate) fn remove(&mut self, actor: &ActorId) -> Option<Value> {
        if actor.tenant != USUAL {
            return self.others.remove(actor);
        }
        let of_type = self.usual.get_mut(&actor.kind)?;
        let removed = of_type.remove((), &actor.key);
        if of_type.len() == 0 {
            self.usual.remove(&actor.kind);
        }
        removed
    }

    /// Keeps those of whom this is true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        self.usual.retain(|_, of_type| {
            of_type.retain(&mut keep);
            of_type.len() > 0
        });
        self.others.retain(&mut keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ActorId, &Value)> {
        let usual = self.usual.iter().flat_map(|(&kind, of_type)| {
            let tenant = USUAL;
            let entries = of_type.iter();
            entries.map(move |((), key, value)| (ActorId { tenant, kind, key }, value))
        });
        usual.chain(self.others.iter())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let usual = self.usual.values().flat_map(KeyMap::values);
        usual.chain(self.others.values())
    }
}

impl<Value> Index<&ActorId> for HostMap<Value> {
    type Output = Value;

    /// # Panics
    /// If the actor is not known.
    fn index(&self, actor: &ActorId) -> &Value {
        self.get(actor).expect("the caller knows that the actor is known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::actor_map::tests::actors;

    #[test]
    fn it_does_what_a_map_does_with_every_kind_of_key() {
        let (mut ours, mut theirs) = (HostMap::default(), BTreeMap::new());
        for (number, actor) in actors().enumerate() {
            assert_eq!(ours.get(&actor), None);
            ours.insert(&actor, number);
            theirs.insert(actor, number);
        }
        for (actor, number) in &mut theirs {
            assert_eq!(ours[actor], *number);
            *ours.get_mut(actor).expect("it is there") += 100;
            *number += 100;
        }
        let gone = theirs.keys().next().expect("there are some").clone();
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
        assert_eq!((ours.len(), ours.usual.len()), (0, 0));
    }
}
