//! Ids of tenants, actors, methods, nodes and calls.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Text;

/// A tenant: the owner of actors, with bounded use of resources. Tenant 0 is the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantId(pub u32);

/// FNV-1a over the name: stable across builds and machines, so that it can be used on the wire and in files.
const fn name_hash(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

macro_rules! named_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// It is a hash of the name; a [`Schema`](crate::Schema) rejects two names with the same hash.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(u32);

        impl $name {
            /// The id of this name.
            pub const fn of(name: &str) -> Self {
                Self(name_hash(name))
            }

            /// The bare number, for tables indexed by it and for the wire.
            pub const fn number(self) -> u32 {
                self.0
            }

            /// The id with this bare number.
            pub const fn from_number(number: u32) -> Self {
                Self(number)
            }
        }
    };
}

named_id!(
    /// An actor type, such as `Folder`.
    ActorType
);
named_id!(
    /// A function of an actor type, such as `open`.
    Method
);
named_id!(
    /// A field of an actor type that holds references to actors, such as `files`.
    Property
);

/// Maximum length of a string key, so that ids stay cheap to send and store.
pub const KEY_BYTES_MAX: usize = 512;

/// Identifies an actor among those of its type and tenant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// A number.
    U64(u64),
    /// A universally unique id, as its 16 bytes.
    Uuid([u8; 16]),
    /// A string of at most [`KEY_BYTES_MAX`] bytes.
    Str(Text),
}

/// A string key has more than [`KEY_BYTES_MAX`] bytes. Nothing was sent; use a shorter key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an actor key of {bytes} bytes is longer than the {KEY_BYTES_MAX} bytes allowed")]
pub struct KeyTooLong {
    /// The key's length.
    pub bytes: usize,
}

impl Key {
    /// Checks the key's length.
    pub fn check(&self) -> Result<(), KeyTooLong> {
        match self {
            Key::Str(text) if text.len() > KEY_BYTES_MAX => Err(KeyTooLong { bytes: text.len() }),
            _ => Ok(()),
        }
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Key::U64(number)
    }
}

impl From<[u8; 16]> for Key {
    fn from(uuid: [u8; 16]) -> Self {
        Key::Uuid(uuid)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Key::Str(text.into())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Key::Str(text.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::U64(number) => write!(out, "{number}"),
            Key::Str(text) => out.write_str(text),
            Key::Uuid(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        out.write_str("-")?;
                    }
                    write!(out, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// An actor. It is virtual: it exists as soon as it is named, and is active on at most one node at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActorId {
    /// The owner.
    pub tenant: TenantId,
    /// Its type.
    pub kind: ActorType,
    /// Its key within type and tenant.
    pub key: Key,
}

impl ActorId {
    /// An actor of the default tenant.
    pub fn new(kind: ActorType, key: impl Into<Key>) -> Self {
        Self {
            tenant: TenantId::default(),
            kind,
            key: key.into(),
        }
    }
}

/// One incarnation of a node (or of a client, which is a node that hosts no actors): the coordination service's
/// revision that created its membership. A restarted node gets a new one, so an id is never reused and serves as the
/// node's epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "n{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// One call or tell: unique across the cluster for all time, because a [`NodeId`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId {
    /// The node that made the call and gets the reply.
    pub origin: NodeId,
    /// Counts the calls of that node.
    pub sequence: u64,
}

/// The chain of nested calls that a call belongs to: the id of the first one. A chain that reaches an actor twice is a
/// cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChainId(pub CallId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_stable_ids() {
        // These numbers are used in files and on the wire: changing them changes the format.
        assert_eq!(ActorType::of("Folder").number(), 0x0635_7afd);
        assert_eq!(Method::of("").number(), 0x811c_9dc5);
    }

    #[test]
    fn keys_display_in_their_usual_notation() {
        assert_eq!(Key::from(7).to_string(), "7");
        assert_eq!(Key::from("a/b").to_string(), "a/b");
        let uuid = Key::from(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        assert_eq!(uuid.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
    }

    #[test]
    fn keys_beyond_the_maximum_length_are_rejected() {
        assert_eq!(Key::from("x".repeat(KEY_BYTES_MAX)).check(), Ok(()));
        let long = KEY_BYTES_MAX + 1;
        assert_eq!(Key::from("x".repeat(long)).check(), Err(KeyTooLong { bytes: long }));
    }
}
