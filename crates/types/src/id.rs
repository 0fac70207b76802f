//! Who is who: tenants, actors, methods, nodes, calls.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Text;

/// A tenant: the owner of actors, whose use of resources is bounded. Tenant 0 is the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantId(pub u32);

/// FNV-1a over the name: stable between builds and machines, so that it may stand on the wire and in files.
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
        /// It is a hash of the name; a [`Schema`](crate::Schema) refuses two names that share one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(u32);

        impl $name {
            /// The id that belongs to this name.
            pub const fn of(name: &str) -> Self {
                Self(name_hash(name))
            }

            /// The bare number, for tables indexed by it and for the wire.
            pub const fn number(self) -> u32 {
                self.0
            }

            /// The id whose bare number this is.
            pub const fn from_number(number: u32) -> Self {
                Self(number)
            }
        }
    };
}

named_id!(
    /// A type of actors, such as `Folder`.
    ActorType
);
named_id!(
    /// A function that actors of a type can be called with, such as `open`.
    Method
);
named_id!(
    /// A field of an actor type that holds references to actors, such as `files`.
    Property
);

/// The longest string key that an actor may have, so that ids stay cheap to send and to keep.
pub const KEY_BYTES_MAX: usize = 512;

/// What distinguishes an actor from others of its type and tenant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// A number.
    U64(u64),
    /// A universally unique id, as its 16 bytes.
    Uuid([u8; 16]),
    /// A string of at most [`KEY_BYTES_MAX`] bytes.
    Str(Text),
}

/// A string key had more than [`KEY_BYTES_MAX`] bytes. Nothing happened; use a shorter key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an actor key of {bytes} bytes is longer than the {KEY_BYTES_MAX} bytes allowed")]
pub struct KeyTooLong {
    /// How long the key was.
    pub bytes: usize,
}

impl Key {
    /// Whether the key is short enough to be used.
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

/// An actor: it exists as soon as somebody names it, and lives on at most one node at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActorId {
    /// Whose actor it is.
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

/// One life of a node (or of a client, which is a node that hosts no actors): the coordination service's revision that
/// created its membership. A restarted node has a new one, so an id is never reused and serves as the node's epoch.
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

/// One call or tell: unique over the whole cluster for all time, because a [`NodeId`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId {
    /// The node that made the call and gets the reply.
    pub origin: NodeId,
    /// Counts the calls of that node.
    pub sequence: u64,
}

/// The chain of nested calls that a call belongs to: the id of the first one. An actor that meets its own chain again
/// has found a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChainId(pub CallId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_stable_ids() {
        // These numbers stand in files and on the wire: a change here is a change of format.
        assert_eq!(ActorType::of("Folder").number(), 0x0635_7afd);
        assert_eq!(Method::of("").number(), 0x811c_9dc5);
    }

    #[test]
    fn keys_show_as_people_write_them() {
        assert_eq!(Key::from(7).to_string(), "7");
        assert_eq!(Key::from("a/b").to_string(), "a/b");
        let uuid = Key::from(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        assert_eq!(uuid.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
    }

    #[test]
    fn a_key_may_be_just_so_long() {
        assert_eq!(Key::from("x".repeat(KEY_BYTES_MAX)).check(), Ok(()));
        let long = KEY_BYTES_MAX + 1;
        assert_eq!(Key::from("x".repeat(long)).check(), Err(KeyTooLong { bytes: long }));
    }
}
