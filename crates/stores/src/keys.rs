//! Encoding of keys in files and databases. A change here changes every storage format.

use elastin_protocol::store::{Space, ValueKey};
use elastin_types::{ActorId, Key};

/// The key of an actor's rows.
pub(crate) fn actor_key(actor: &ActorId) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    key.extend(actor.tenant.0.to_be_bytes());
    key.extend(actor.kind.number().to_be_bytes());
    match &actor.key {
        Key::U64(number) => {
            key.push(0);
            key.extend(number.to_be_bytes());
        }
        Key::Uuid(uuid) => {
            key.push(1);
            key.extend(uuid);
        }
        Key::Str(text) => {
            key.push(2);
            key.extend(text.as_bytes());
        }
    }
    key
}

/// The common prefix of all keys of a space. No space's prefix is a prefix of another's.
pub(crate) fn space_prefix(space: Space) -> Vec<u8> {
    match space {
        Space::System => vec![0],
        Space::Tenant(tenant) => [&[1][..], &tenant.0.to_be_bytes()].concat(),
    }
}

/// The key of a shared value or a lock. Within a space, keys sort like names.
pub(crate) fn value_key(key: &ValueKey) -> Vec<u8> {
    let mut bytes = space_prefix(key.space);
    bytes.extend(&key.name);
    bytes
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActorType, TenantId};

    use super::*;

    #[test]
    fn keys_are_a_format() {
        let actor = |key: Key| ActorId::new(ActorType::of("Folder"), key);
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(actor_key(&actor(7.into()))), "0000000006357afd000000000000000007");
        assert_eq!(hex(actor_key(&actor("ab".into()))), "0000000006357afd026162");
        let key = |space| ValueKey {
            space,
            name: "n".into(),
        };
        assert_eq!(hex(value_key(&key(Space::System))), "006e");
        assert_eq!(hex(value_key(&key(Space::Tenant(TenantId(258))))), "01000001026e");
    }
}
