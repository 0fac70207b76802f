//! An index of the names in a schema, because a policy with many rules looks them up often.

use std::collections::BTreeMap;

use elastin_types::{ActorSchema, ActorType, Schema};

/// An index of a schema by name.
pub(crate) struct SchemaNames<'a> {
    by_name: BTreeMap<&'a str, &'a ActorSchema>,
    by_kind: BTreeMap<ActorType, &'a ActorSchema>,
}

impl<'a> SchemaNames<'a> {
    pub(crate) fn new(schema: &'a Schema) -> Self {
        Self {
            by_name: schema
                .actors()
                .iter()
                .map(|actor| (actor.name.as_str(), actor))
                .collect(),
            by_kind: schema.actors().iter().map(|actor| (actor.kind(), actor)).collect(),
        }
    }

    /// The type of this name.
    pub(crate) fn actor(&self, name: &str) -> Option<&'a ActorSchema> {
        self.by_name.get(name).copied()
    }

    /// The names of all types.
    pub(crate) fn types(&self) -> impl Iterator<Item = &'a str> + Clone {
        self.by_name.keys().copied()
    }

    /// The types that a variable of this type can stand for: one, or all for `any`.
    pub(crate) fn types_of(&self, kind: Option<ActorType>) -> impl Iterator<Item = &'a ActorSchema> + Clone {
        let one = kind.and_then(|kind| self.by_kind.get(&kind).copied());
        let all = self.by_kind.values().copied().filter(move |_| kind.is_none());
        one.into_iter().chain(all)
    }

    /// The name of a type as policies write it.
    pub(crate) fn name_of(&self, kind: Option<ActorType>) -> &'a str {
        match kind {
            None => "any",
            Some(kind) => self.by_kind.get(&kind).map_or("?", |actor| actor.name.as_str()),
        }
    }
}
