//! A map by what an actor's key and something before it are, that wastes little memory.
//!
//! Of a [`Key`] a third or more is there to tell kinds of keys apart. So each kind has a map of its own here, where it takes 16
//! bytes, and 8 if it is a number. Strings that are short enough are in their entries, too.

use std::hash::Hash;
use std::sync::Arc;

use elastin_types::{Key, ShortText};
use hashbrown::Equivalent;

use crate::collections::compact_map::CompactMap;

/// A map by keys, each with something before it, in no particular but always the same order.
#[derive(Debug)]
pub(crate) struct KeyMap<Before, Value> {
    numbers: CompactMap<(Before, u64), Value>,
    uuids: CompactMap<(Before, [u8; 16]), Value>,
    short_texts: CompactMap<(Before, ShortText), Value>,
    texts: CompactMap<(Before, Shared), Value>,
}

/// A string that is shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shared(Arc<str>);

/// The same where it is looked for.
#[derive(Hash)]
struct Sought<'a, Before>(Before, &'a Arc<str>);

impl<Before: Eq> Equivalent<(Before, Shared)> for Sought<'_, Before> {
    fn equivalent(&self, (before, Shared(text)): &(Before, Shared)) -> bool {
        self.0 == *before && self.1 == text
    }
}

impl<Before, Value> Default for KeyMap<Before, Value> {
    fn default() -> Self {
        Self {
            numbers: CompactMap::default(),
            uuids: CompactMap::default(),
            short_texts: CompactMap::default(),
            texts: CompactMap::default(),
        }
    }
}

impl<Before: Copy + Eq + Hash, Value> KeyMap<Before, Value> {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len() + self.uuids.len() + self.short_texts.len() + self.texts.len()
    }

    pub(crate) fn get(&self, before: Before, key: &Key) -> Option<&Value> {
        match key {
            Key::U64(number) => self.numbers.get(&(before, *number)),
            Key::Uuid(uuid) => self.uuids.get(&(before, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get(&(before, short)),
                Err(long) => self.texts.get(&Sought(before, long)),
            },
        }
    }

    pub(crate) fn get_mut(&mut self, before: Before, key: &Key) -> Option<&mut Value> {
        match key {
            Key::U64(number) => self.numbers.get_mut(&(before, *number)),
            Key::Uuid(uuid) => self.uuids.get_mut(&(before, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get_mut(&(before, short)),
                Err(long) => self.texts.get_mut(&Sought(before, long)),
            },
        }
    }

    /// Sets what is known of a key.
    pub(crate) fn insert(&mut self, before: Before, key: &Key, value: Value) {
        match key {
            Key::U64(number) => self.numbers.insert((before, *number), value),
            Key::Uuid(uuid) => self.uuids.insert((before, *uuid), value),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.insert((before, short), value),
                Err(long) => self.texts.insert((before, Shared(long.clone())), value),
            },
        }
    }

    pub(crate) fn remove(&mut self, before: Before, key: &Key) -> Option<Value> {
        match key {
            Key::U64(number) => self.numbers.remove(&(before, *number)),
            Key::Uuid(uuid) => self.uuids.remove(&(before, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.remove(&(before, short)),
                Err(long) => self.texts.remove(&Sought(before, long)),
            },
        }
    }

    /// Keeps those of whom this is true.
    pub(crate) fn retain(&mut self, keep: &mut impl FnMut(&Value) -> bool) {
        self.numbers.retain(&mut *keep);
        self.uuids.retain(&mut *keep);
        self.short_texts.retain(&mut *keep);
        self.texts.retain(&mut *keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Before, Key, &Value)> {
        let numbers = self.numbers.iter();
        let numbers = numbers.map(|(&(before, number), value)| (before, Key::U64(number), value));
        let uuids = self.uuids.iter();
        let uuids = uuids.map(|(&(before, uuid), value)| (before, Key::Uuid(uuid), value));
        let short_texts = self.short_texts.iter();
        let short_texts = short_texts.map(|(&(before, text), value)| (before, Key::Str(text.into()), value));
        let texts = self.texts.iter();
        let texts = texts.map(|((before, Shared(text)), value)| (*before, Key::Str(text.clone().into()), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let numbers = self.numbers.iter().map(|(_, value)| value);
        let uuids = self.uuids.iter().map(|(_, value)| value);
        let short_texts = self.short_texts.iter().map(|(_, value)| value);
        let texts = self.texts.iter().map(|(_, value)| value);
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (Before, Key, Value)> {
        let numbers = self.numbers.into_iter();
        let numbers = numbers.map(|((before, number), value)| (before, Key::U64(number), value));
        let uuids = self.uuids.into_iter();
        let uuids = uuids.map(|((before, uuid), value)| (before, Key::Uuid(uuid), value));
        let short_texts = self.short_texts.into_iter();
        let short_texts = short_texts.map(|((before, text), value)| (before, Key::Str(text.into()), value));
        let texts = self.texts.into_iter();
        let texts = texts.map(|((before, Shared(text)), value)| (before, Key::Str(text.into()), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    /// The bytes that it takes, keys included.
    pub(crate) fn bytes(&self) -> usize {
        self.numbers.bytes() + self.uuids.bytes() + self.short_texts.bytes() + self.texts.bytes()
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActorType, TenantId};

    use super::*;

    #[test]
    fn keys_take_little() {
        type Type = (TenantId, ActorType);
        assert_eq!((size_of::<((), u64)>(), size_of::<(Type, u64)>()), (8, 16));
        assert_eq!((size_of::<((), [u8; 16])>(), size_of::<(Type, [u8; 16])>()), (16, 24));
        assert_eq!((size_of::<((), ShortText)>(), size_of::<(Type, ShortText)>()), (16, 24));
        assert_eq!((size_of::<((), Shared)>(), size_of::<(Type, Shared)>()), (16, 24));
    }
}
