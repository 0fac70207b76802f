//! A compact map by actor key and a prefix, such as tenant and type.
//!
//! A third or more of a [`Key`] distinguishes the kinds of keys. Each kind has its own map here, which removes that
//! overhead. Short strings are stored inline in their entries.

use std::hash::Hash;
use std::sync::Arc;

use elastin_types::{Key, ShortText};
use hashbrown::Equivalent;

use crate::collections::compact_map::CompactMap;

/// A map by prefix and key, iterated in an unspecified but deterministic order.
#[derive(Debug)]
pub(crate) struct KeyMap<Prefix, Value> {
    numbers: CompactMap<(Prefix, u64), Value>,
    uuids: CompactMap<(Prefix, [u8; 16]), Value>,
    short_texts: CompactMap<(Prefix, ShortText), Value>,
    texts: CompactMap<(Prefix, SharedText), Value>,
}

/// A long string key, shared with its owners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SharedText(Arc<str>);

/// Borrowed lookup form of a [`SharedText`] key.
#[derive(Hash)]
struct TextQuery<'a, Prefix>(Prefix, &'a Arc<str>);

impl<Prefix: Eq> Equivalent<(Prefix, SharedText)> for TextQuery<'_, Prefix> {
    fn equivalent(&self, (prefix, SharedText(text)): &(Prefix, SharedText)) -> bool {
        self.0 == *prefix && self.1 == text
    }
}

impl<Prefix, Value> Default for KeyMap<Prefix, Value> {
    fn default() -> Self {
        Self {
            numbers: CompactMap::default(),
            uuids: CompactMap::default(),
            short_texts: CompactMap::default(),
            texts: CompactMap::default(),
        }
    }
}

impl<Prefix: Copy + Eq + Hash, Value> KeyMap<Prefix, Value> {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len() + self.uuids.len() + self.short_texts.len() + self.texts.len()
    }

    pub(crate) fn get(&self, prefix: Prefix, key: &Key) -> Option<&Value> {
        match key {
            Key::U64(number) => self.numbers.get(&(prefix, *number)),
            Key::Uuid(uuid) => self.uuids.get(&(prefix, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get(&(prefix, short)),
                Err(long) => self.texts.get(&TextQuery(prefix, long)),
            },
        }
    }

    pub(crate) fn get_mut(&mut self, prefix: Prefix, key: &Key) -> Option<&mut Value> {
        match key {
            Key::U64(number) => self.numbers.get_mut(&(prefix, *number)),
            Key::Uuid(uuid) => self.uuids.get_mut(&(prefix, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.get_mut(&(prefix, short)),
                Err(long) => self.texts.get_mut(&TextQuery(prefix, long)),
            },
        }
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, prefix: Prefix, key: &Key, value: Value) {
        match key {
            Key::U64(number) => self.numbers.insert((prefix, *number), value),
            Key::Uuid(uuid) => self.uuids.insert((prefix, *uuid), value),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.insert((prefix, short), value),
                Err(long) => self.texts.insert((prefix, SharedText(long.clone())), value),
            },
        }
    }

    pub(crate) fn remove(&mut self, prefix: Prefix, key: &Key) -> Option<Value> {
        match key {
            Key::U64(number) => self.numbers.remove(&(prefix, *number)),
            Key::Uuid(uuid) => self.uuids.remove(&(prefix, *uuid)),
            Key::Str(text) => match text.short() {
                Ok(short) => self.short_texts.remove(&(prefix, short)),
                Err(long) => self.texts.remove(&TextQuery(prefix, long)),
            },
        }
    }

    /// Keeps the entries for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: &mut impl FnMut(&Value) -> bool) {
        self.numbers.retain(&mut *keep);
        self.uuids.retain(&mut *keep);
        self.short_texts.retain(&mut *keep);
        self.texts.retain(&mut *keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix, Key, &Value)> {
        let numbers = self.numbers.iter();
        let numbers = numbers.map(|(&(prefix, number), value)| (prefix, Key::U64(number), value));
        let uuids = self.uuids.iter();
        let uuids = uuids.map(|(&(prefix, uuid), value)| (prefix, Key::Uuid(uuid), value));
        let short_texts = self.short_texts.iter();
        let short_texts = short_texts.map(|(&(prefix, text), value)| (prefix, Key::Str(text.into()), value));
        let texts = self.texts.iter();
        let texts = texts.map(|((prefix, SharedText(text)), value)| (*prefix, Key::Str(text.clone().into()), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let numbers = self.numbers.iter().map(|(_, value)| value);
        let uuids = self.uuids.iter().map(|(_, value)| value);
        let short_texts = self.short_texts.iter().map(|(_, value)| value);
        let texts = self.texts.iter().map(|(_, value)| value);
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (Prefix, Key, Value)> {
        let numbers = self.numbers.into_iter();
        let numbers = numbers.map(|((prefix, number), value)| (prefix, Key::U64(number), value));
        let uuids = self.uuids.into_iter();
        let uuids = uuids.map(|((prefix, uuid), value)| (prefix, Key::Uuid(uuid), value));
        let short_texts = self.short_texts.into_iter();
        let short_texts = short_texts.map(|((prefix, text), value)| (prefix, Key::Str(text.into()), value));
        let texts = self.texts.into_iter();
        let texts = texts.map(|((prefix, SharedText(text)), value)| (prefix, Key::Str(text.into()), value));
        numbers.chain(uuids).chain(short_texts).chain(texts)
    }

    /// The allocated bytes, keys included.
    pub(crate) fn bytes(&self) -> usize {
        self.numbers.bytes() + self.uuids.bytes() + self.short_texts.bytes() + self.texts.bytes()
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActorType, TenantId};

    use super::*;

    #[test]
    fn keys_have_no_discriminant() {
        type Type = (TenantId, ActorType);
        assert_eq!((size_of::<((), u64)>(), size_of::<(Type, u64)>()), (8, 16));
        assert_eq!((size_of::<((), [u8; 16])>(), size_of::<(Type, [u8; 16])>()), (16, 24));
        assert_eq!((size_of::<((), ShortText)>(), size_of::<(Type, ShortText)>()), (16, 24));
        assert_eq!(
            (size_of::<((), SharedText)>(), size_of::<(Type, SharedText)>()),
            (16, 24)
        );
    }
}
