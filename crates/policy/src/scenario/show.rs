//! The textual form of actors and actions.

use std::collections::BTreeSet;

use elastin_types::{ActorId, ActorType, Key, Schema};

use crate::{Action, Fired};

/// Parses an actor such as `Folder/1`. A numeric key becomes an integer key.
pub fn parse_actor(text: &str, schema: &Schema) -> Option<ActorId> {
    let (kind, key) = text.split_once('/')?;
    let kind = schema.actor(kind)?.kind();
    let key = key.parse().map_or_else(|_| Key::from(key), Key::U64);
    key.check().ok()?;
    Some(ActorId::new(kind, key))
}

/// The actors in parentheses after a word; empty if the text does not start with the word.
pub(super) fn actors_of(text: &str, word: &str, schema: &Schema) -> Vec<Option<ActorId>> {
    let Some(arguments) = text.strip_prefix(word).and_then(|rest| rest.strip_suffix(')')) else {
        return Vec::new();
    };
    arguments
        .split(',')
        .map(|actor| parse_actor(actor.trim(), schema))
        .collect()
}

/// All distinct actions that fired, as sorted text. The two ends of `colocate` and `separate` are ordered by id.
pub fn distinct_actions(fired: &[Fired], schema: &Schema) -> Vec<String> {
    let mut texts = BTreeSet::new();
    for one in fired {
        for action in &one.actions {
            let text = show_action(action, schema);
            match (action, one.server) {
                (Action::Balance(_), Some(server)) => texts.insert(format!("{text} on {server}")),
                _ => texts.insert(text),
            };
        }
    }
    texts.into_iter().collect()
}

/// The textual form of an action.
pub fn show_action(action: &Action, schema: &Schema) -> String {
    let pair = |one: &ActorId, other: &ActorId| {
        let (one, other) = (one.min(other), one.max(other));
        format!("{}, {}", schema.show(one), schema.show(other))
    };
    match action {
        Action::Balance(balance) => {
            let name = |kind: &ActorType| match schema.actor_of(*kind) {
                Some(actor) => actor.name.clone(),
                None => format!("#{:08x}", kind.number()),
            };
            let kinds = match &balance.kinds[..] {
                [] => "any".into(),
                kinds => kinds.iter().map(name).collect::<Vec<_>>().join(", "),
            };
            format!("balance({{{kinds}}}, {})", balance.resource)
        }
        Action::Reserve { actor, resource } => format!("reserve({}, {resource})", schema.show(actor)),
        Action::Colocate(one, other) => format!("colocate({})", pair(one, other)),
        Action::Separate(one, other) => format!("separate({})", pair(one, other)),
        Action::Pin(actor) => format!("pin({})", schema.show(actor)),
    }
}
