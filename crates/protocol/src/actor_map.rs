//! A map by actor that wastes little memory.
//!
//! Of an [`ActorId`] a fifth or more is there to tell kinds of keys apart. So each kind has a map of its own here, where the id
//! takes 24 bytes, and 16 if its key is a number. Strings that are short enough are in their entries, too.

use std::ops::Index;
use std::sync::Arc;

use elastin_types::{ActorId, ActorType, Key, ShortText, TenantId};
use hashbrown::Equivalent;

use crate::compact_map::CompactMap;

/// A map by actor, in no particular but always the same order.
#[derive(Debug)]
pub(crate) struct ActorMap<Value> {
    numbers: CompactMap<Id<u64>, Value>,
    uuids: CompactMap<Id<[u8; 16]>, Value>,
    short_texts: CompactMap<Id<ShortText>, Value>,
    texts: CompactMap<Id<Arc<str>>, Value>,
}

/// The id of an actor with this kind of key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Id<Key> {
    tenant: TenantId,
    kind: ActorType,
    key: Key,
}

impl<K> Id<K> {
    fn new(actor: &ActorId, key: K) -> Self {
        let (tenant, kind) = (actor.tenant, actor.kind);
        Self { tenant, kind, key }
    }
}

impl<K: Clone> Id<K> {
    fn actor(&self, key: impl FnOnce(K) -> Key) -> ActorId {
        let (tenant, kind) = (self.tenant, self.kind);
        let key = key(self.key.clone());
        ActorId { tenant, kind, key }
    }
}

impl Equivalent<Id<Arc<str>>> for Id<&str> {
    fn equivalent(&self, other: &Id<Arc<str>>) -> bool {
        (self.tenant, self.kind, self.key) == (other.tenant, other.kind, &*other.key)
    }
}

impl<Value> Default for ActorMap<Value> {
    fn default() -> Self {
        Self {
            numbers: CompactMap::default(),
            uuids: CompactMap::default(),
            short_texts: CompactMap::default(),
            texts: CompactMap::default(),
        }
    }
}

impl<Value> ActorMap<Value> {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len() + self.uuids.len() + self.short_texts.len() + self.texts.len()
    }

    pub(crate) fn get(&self, actor: &ActorId) -> Option<&Value> {
        match &actor.key {
            Key::U64(number) => self.numbers.get(&Id::new(actor, *number)),
            Key::Uuid(uuid) => self.uuids.get(&Id::new(actor, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get(&Id::new(actor, short)),
                Err(long) => self.texts.get(&Id::new(actor, &**long)),
            },
        }
    }

    pub(crate) fn get_mut(&mut self, actor: &ActorId) -> Option<&mut Value> {
        match &actor.key {
            Key::U64(number) => self.numbers.get_mut(&Id::new(actor, *number)),
            Key::Uuid(uuid) => self.uuids.get_mut(&Id::new(actor, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get_mut(&Id::new(actor, short)),
                Err(long) => self.texts.get_mut(&Id::new(actor, &**long)),
            },
        }
    }

    /// Sets what is known of an actor.
    pub(crate) fn insert(&mut self, actor: &ActorId, value: Value) {
        match &actor.key {
            Key::U64(number) => self.numbers.insert(Id::new(actor, *number), value),
            Key::Uuid(uuid) => self.uuids.insert(Id::new(actor, *uuid), value),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.insert(Id::new(actor, short), value),
                Err(long) => self.texts.insert(Id::new(actor, long.clone()), value),
            },
        }
    }

    pub(crate) fn remove(&mut self, actor: &ActorId) -> Option<Value> {
        match &actor.key {
            Key::U64(number) => self.numbers.remove(&Id::new(actor, *number)),
            Key::Uuid(uuid) => self.uuids.remove(&Id::new(actor, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.remove(&Id::new(actor, short)),
                Err(long) => self.texts.remove(&Id::new(actor, &**long)),
            },
        }
    }

    /// Keeps those of whom this is true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        self.numbers.retain(&mut keep);
        self.uuids.retain(&mut keep);
        self.short_texts.retain(&mut keep);
        self.texts.retain(&mut keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ActorId, &Value)> {
        let numbers = self.numbers.iter().map(|(id, value)| (id.actor(Key::U64), value));
        let uuids = self.uuids.iter().map(|(id, value)| (id.actor(Key::Uuid), value));
        let short_texts = self.short_texts.iter();
        let short_texts = short_texts.map(|(id, value)| (id.actor(|text| Key::Str(text.into())), value));
        let texts = self.texts.iter();
        let texts = texts.map(|(id, value)| (id.actor(|text| Key::Str(text.into())), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let numbers = self.numbers.iter().map(|(_, value)| value);
        let uuids = self.uuids.iter().map(|(_, value)| value);
        let short_texts = self.short_texts.iter().map(|(_, value)| value);
        let texts = self.texts.iter().map(|(_, value)| value);
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (ActorId, Value)> {
        let numbers = self.numbers.into_iter().map(|(id, value)| (id.actor(Key::U64), value));
        let uuids = self.uuids.into_iter().map(|(id, value)| (id.actor(Key::Uuid), value));
        let short_texts = self.short_texts.into_iter();
        let short_texts = short_texts.map(|(id, value)| (id.actor(|text| Key::Str(text.into())), value));
        let texts = self.texts.into_iter();
        let texts = texts.map(|(id, value)| (id.actor(|text| Key::Str(text.into())), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The bytes that it takes, ids included.
    pub(crate) fn bytes(&self) -> usize {
        self.numbers.bytes() + self.uuids.bytes() + self.short_texts.bytes() + self.texts.bytes()
    }
}

impl<Value> Index<&ActorId> for ActorMap<Value> {
    type Output = Value;

    /// # Panics
    /// If the actor is not known.
    fn index(&self, actor: &ActorId) -> &Value {
        self.get(actor).expect("the caller knows that the actor is known")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn ids_take_little() {
        assert_eq!(size_of::<Id<u64>>(), 16);
        assert_eq!(size_of::<Id<[u8; 16]>>(), 24);
        assert_eq!(size_of::<Id<ShortText>>(), 24);
        assert_eq!(size_of::<Id<Arc<str>>>(), 24);
    }

    #[test]
    fn it_does_what_a_map_does_with_every_kind_of_key() {
        let keys = [
            Key::from(1),
            Key::from(2),
            Key::from([1; 16]),
            Key::from("1"),
            Key::from(""),
            Key::from("a string that is not short"),
        ];
        let of_tenant = |tenant| keys.iter().map(move |key| (TenantId(tenant), key.clone()));
        let actors = of_tenant(0).chain(of_tenant(1)).map(|(tenant, key)| ActorId {
            tenant,
            kind: ActorType::of("Folder"),
            key,
        });
        let (mut ours, mut theirs) = (ActorMap::default(), BTreeMap::new());
        for (number, actor) in actors.enumerate() {
            assert_eq!(ours.get(&actor), None);
            ours.insert(&actor, number);
            theirs.insert(actor, number);
        }
        for (actor, number) in &mut theirs {
            assert_eq!(ours[actor], *number);
            *ours.get_mut(actor).expect("it is there") += 100;
            *number += 100;
        }
        assert_eq!(
            ours.iter()
                .map(|(actor, number)| (actor, *number))
                .collect::<BTreeMap<_, _>>(),
            theirs
        );
        let gone = theirs.keys().next().expect("there are some").clone();
        assert_eq!(ours.remove(&gone), theirs.remove(&gone));
        ours.retain(|number| number % 2 == 0);
        theirs.retain(|_, number| *number % 2 == 0);
        assert_eq!(
            (ours.len(), ours.values().sum::<usize>()),
            (theirs.len(), theirs.values().sum())
        );
        assert_eq!(ours.into_iter().collect::<BTreeMap<_, _>>(), theirs);
    }
}
