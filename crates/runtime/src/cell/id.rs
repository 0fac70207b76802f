//! Compact actor id stored in a cell: the actor type is known from the cell's type.

use std::sync::Arc;

use elastin_types::{ActorId, ActorType, Key, ShortText, TenantId};

/// The id of an actor of known type. It takes 24 bytes instead of 32, because a node holds very many cells.
pub(crate) enum CellId {
    Number(TenantId, u64),
    Uuid(TenantId, [u8; 16]),
    ShortText(TenantId, ShortText),
    Text(TenantId, Arc<str>),
}

impl CellId {
    pub(crate) fn of(actor: &ActorId) -> Self {
        let tenant = actor.tenant;
        match &actor.key {
            Key::U64(number) => CellId::Number(tenant, *number),
            Key::Uuid(uuid) => CellId::Uuid(tenant, *uuid),
            Key::Str(text) => match text.short() {
                Ok(short) => CellId::ShortText(tenant, short),
                Err(long) => CellId::Text(tenant, long.clone()),
            },
        }
    }

    /// The full id, given the actor's type.
    pub(crate) fn actor(&self, kind: ActorType) -> ActorId {
        let (tenant, key) = match self {
            CellId::Number(tenant, number) => (*tenant, Key::U64(*number)),
            CellId::Uuid(tenant, uuid) => (*tenant, Key::Uuid(*uuid)),
            CellId::ShortText(tenant, text) => (*tenant, Key::Str((*text).into())),
            CellId::Text(tenant, text) => (*tenant, Key::Str(text.clone().into())),
        };
        ActorId { tenant, kind, key }
    }

    /// Whether this is the id of the given actor, assuming the same type.
    #[inline]
    pub(crate) fn is_of(&self, actor: &ActorId) -> bool {
        let (tenant, is_its) = match (self, &actor.key) {
            (CellId::Number(tenant, ours), Key::U64(theirs)) => (tenant, ours == theirs),
            (CellId::Uuid(tenant, ours), Key::Uuid(theirs)) => (tenant, ours == theirs),
            (CellId::ShortText(tenant, ours), Key::Str(theirs)) => (tenant, theirs.short() == Ok(*ours)),
            (CellId::Text(tenant, ours), Key::Str(theirs)) => (tenant, theirs.short() == Err(ours)),
            _ => return false,
        };
        is_its && *tenant == actor.tenant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_matches_only_its_own_actor() {
        let kind = ActorType::of("Folder");
        let keys = [
            Key::from(1),
            Key::from(2),
            Key::from([1; 16]),
            Key::from("1"),
            Key::from(""),
            Key::from("a string that is not short"),
            Key::from("another that is not"),
        ];
        let of_tenant = |tenant| keys.clone().map(|key| (TenantId(tenant), key));
        let ids = of_tenant(0).into_iter().chain(of_tenant(1));
        let actors: Vec<ActorId> = ids.map(|(tenant, key)| ActorId { tenant, kind, key }).collect();
        for one in &actors {
            let id = CellId::of(one);
            assert_eq!(id.actor(kind), *one);
            actors
                .iter()
                .for_each(|other| assert_eq!(id.is_of(other), one == other));
        }
        assert_eq!(size_of::<CellId>(), 24);
    }
}
