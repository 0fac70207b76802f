//! A compact map by actor. A node may host millions of actors and know the hosts of as many.
//!
//! A third or more of a [`Key`] distinguishes the kinds of keys. Each kind has its own map here, which removes that
//! overhead; a map by [`ActorId`] would store it in each entry. Short strings are stored inline in their entries.

use std::hash::Hash;
use std::ops::Index;
use std::sync::Arc;

use elastin_types::{ActorId, ActorType, Key, ShortText, TenantId};
use hashbrown::Equivalent;

use crate::collections::compact_map::CompactMap;

/// A map by actor, iterated in an unspecified but deterministic order.
#[derive(Debug)]
pub(crate) struct ActorMap<Value> {
    numbers: CompactMap<(Scope, u64), Value>,
    uuids: CompactMap<(Scope, [u8; 16]), Value>,
    short_texts: CompactMap<(Scope, ShortText), Value>,
    texts: CompactMap<(Scope, SharedText), Value>,
}

/// The actors that a key distinguishes.
type Scope = (TenantId, ActorType);

/// A long string key, shared with its owners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SharedText(Arc<str>);

/// Borrowed lookup form of a [`SharedText`] key.
#[derive(Hash)]
struct TextQuery<'a>(Scope, &'a Arc<str>);

impl Equivalent<(Scope, SharedText)> for TextQuery<'_> {
    fn equivalent(&self, (scope, SharedText(text)): &(Scope, SharedText)) -> bool {
        self.0 == *scope && self.1 == text
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

fn scope(actor: &ActorId) -> Scope {
    (actor.tenant, actor.kind)
}

fn actor((tenant, kind): Scope, key: Key) -> ActorId {
    ActorId { tenant, kind, key }
}

impl<Value> ActorMap<Value> {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len() + self.uuids.len() + self.short_texts.len() + self.texts.len()
    }

    pub(crate) fn get(&self, actor: &ActorId) -> Option<&Value> {
        let scope = scope(actor);
        match &actor.key {
            Key::U64(number) => self.numbers.get(&(scope, *number)),
            Key::Uuid(uuid) => self.uuids.get(&(scope, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get(&(scope, short)),
                Err(long) => self.texts.get(&TextQuery(scope, long)),
            },
        }
    }

    pub(crate) fn get_mut(&mut self, actor: &ActorId) -> Option<&mut Value> {
        let scope = scope(actor);
        match &actor.key {
            Key::U64(number) => self.numbers.get_mut(&(scope, *number)),
            Key::Uuid(uuid) => self.uuids.get_mut(&(scope, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get_mut(&(scope, short)),
                Err(long) => self.texts.get_mut(&TextQuery(scope, long)),
            },
        }
    }

    /// Sets the value of an actor.
    pub(crate) fn insert(&mut self, actor: &ActorId, value: Value) {
        let scope = scope(actor);
        match &actor.key {
            Key::U64(number) => self.numbers.insert((scope, *number), value),
            Key::Uuid(uuid) => self.uuids.insert((scope, *uuid), value),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.insert((scope, short), value),
                Err(long) => self.texts.insert((scope, SharedText(long.clone())), value),
            },
        }
    }

    pub(crate) fn remove(&mut self, actor: &ActorId) -> Option<Value> {
        let scope = scope(actor);
        match &actor.key {
            Key::U64(number) => self.numbers.remove(&(scope, *number)),
            Key::Uuid(uuid) => self.uuids.remove(&(scope, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.remove(&(scope, short)),
                Err(long) => self.texts.remove(&TextQuery(scope, long)),
            },
        }
    }

    /// Keeps the entries for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        self.numbers.retain(&mut keep);
        self.uuids.retain(&mut keep);
        self.short_texts.retain(&mut keep);
        self.texts.retain(&mut keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ActorId, &Value)> {
        let numbers = self.numbers.iter();
        let numbers = numbers.map(|(&(scope, number), value)| (actor(scope, Key::U64(number)), value));
        let uuids = self.uuids.iter();
        let uuids = uuids.map(|(&(scope, uuid), value)| (actor(scope, Key::Uuid(uuid)), value));
        let short_texts = self.short_texts.iter();
        let short_texts = short_texts.map(|(&(scope, text), value)| (actor(scope, Key::Str(text.into())), value));
        let texts = self.texts.iter();
        let texts =
            texts.map(|((scope, SharedText(text)), value)| (actor(*scope, Key::Str(text.clone().into())), value));
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
        let numbers = self.numbers.into_iter();
        let numbers = numbers.map(|((scope, number), value)| (actor(scope, Key::U64(number)), value));
        let uuids = self.uuids.into_iter();
        let uuids = uuids.map(|((scope, uuid), value)| (actor(scope, Key::Uuid(uuid)), value));
        let short_texts = self.short_texts.into_iter();
        let short_texts = short_texts.map(|((scope, text), value)| (actor(scope, Key::Str(text.into())), value));
        let texts = self.texts.into_iter();
        let texts = texts.map(|((scope, SharedText(text)), value)| (actor(scope, Key::Str(text.into())), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The allocated bytes, keys included.
    pub(crate) fn bytes(&self) -> usize {
        self.numbers.bytes() + self.uuids.bytes() + self.short_texts.bytes() + self.texts.bytes()
    }
}

impl<Value> Index<&ActorId> for ActorMap<Value> {
    type Output = Value;

    /// # Panics
    /// If the map does not contain the actor.
    fn index(&self, actor: &ActorId) -> &Value {
        self.get(actor).expect("the map contains the actor")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Actors with every kind of key, of two tenants and two types.
    fn actors() -> impl Iterator<Item = ActorId> {
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
            assert_eq!(ours[actor], *number);
            *ours.get_mut(actor).expect("the actor was inserted") += 100;
            *number += 100;
        }
        let seen: BTreeMap<_, _> = ours.iter().map(|(actor, number)| (actor, *number)).collect();
        assert_eq!(seen, theirs);
        let gone = theirs.keys().next().expect("the map is not empty").clone();
        assert_eq!(ours.remove(&gone), theirs.remove(&gone));
        assert_eq!(ours.remove(&gone), None);
        ours.retain(|number| number % 2 == 0);
        theirs.retain(|_, number| *number % 2 == 0);
        assert_eq!(
            (ours.len(), ours.values().sum::<usize>()),
            (theirs.len(), theirs.values().sum())
        );
        assert_eq!(ours.into_iter().collect::<BTreeMap<_, _>>(), theirs);
    }

    #[test]
    fn keys_have_no_discriminant() {
        assert_eq!(size_of::<(Scope, u64)>(), 16);
        assert_eq!(size_of::<(Scope, [u8; 16])>(), 24);
        assert_eq!(size_of::<(Scope, ShortText)>(), 24);
        assert_eq!(size_of::<(Scope, SharedText)>(), 24);
    }
}
