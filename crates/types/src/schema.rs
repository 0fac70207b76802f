//! The schema of an application: its actor types, their functions and references.

use serde::{Deserialize, Serialize};

use crate::{ActorId, ActorType, Method, Property};

/// All actor types of an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    actors: Vec<ActorSchema>,
}

/// One actor type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorSchema {
    /// Its name, as used in policies.
    pub name: String,
    /// Its functions.
    pub functions: Vec<FunctionSchema>,
    /// The fields that hold references to actors.
    pub properties: Vec<PropertySchema>,
}

impl ActorSchema {
    /// The id derived from its name.
    pub fn kind(&self) -> ActorType {
        ActorType::of(&self.name)
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&FunctionSchema> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// The property of this name.
    pub fn property(&self, name: &str) -> Option<&PropertySchema> {
        self.properties.iter().find(|property| property.name == name)
    }
}

/// One function of an actor type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionSchema {
    /// Its name.
    pub name: String,
    /// Its parameters, without the context.
    pub parameters: Vec<ParameterSchema>,
    /// The Rust type that it returns, as written in source.
    pub reply: String,
    /// Whether it only reads the actor (`&self`).
    pub read_only: bool,
}

impl FunctionSchema {
    /// The id derived from its name.
    pub fn method(&self) -> Method {
        Method::of(&self.name)
    }
}

/// One parameter of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterSchema {
    /// Its name.
    pub name: String,
    /// Its Rust type, as written in source.
    pub type_name: String,
}

/// One field that holds references to actors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PropertySchema {
    /// The field's name.
    pub name: String,
    /// The name of the actor type that it refers to.
    pub target: String,
}

impl PropertySchema {
    /// The id derived from its name.
    pub fn property(&self) -> Property {
        Property::of(&self.name)
    }
}

/// An actor type can't be added to a schema. The schema is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The type is already registered.
    #[error("actor type `{0}` is registered twice")]
    Duplicate(String),
    /// Two names have the same id.
    #[error("the names `{0}` and `{1}` have the same id: rename one of them")]
    Collision(String, String),
}

impl Schema {
    /// Adds an actor type.
    pub fn add(&mut self, actor: ActorSchema) -> Result<(), SchemaError> {
        if let Some(same) = self.actors.iter().find(|other| other.kind() == actor.kind()) {
            return Err(if same.name == actor.name {
                SchemaError::Duplicate(actor.name)
            } else {
                SchemaError::Collision(same.name.clone(), actor.name)
            });
        }
        check_collisions(
            actor
                .functions
                .iter()
                .map(|function| (function.name.as_str(), function.method().number())),
        )?;
        check_collisions(
            actor
                .properties
                .iter()
                .map(|property| (property.name.as_str(), property.property().number())),
        )?;
        self.actors.push(actor);
        Ok(())
    }

    /// All actor types, in the order of their registration.
    pub fn actors(&self) -> &[ActorSchema] {
        &self.actors
    }

    /// The actor type of this name.
    pub fn actor(&self, name: &str) -> Option<&ActorSchema> {
        self.actors.iter().find(|actor| actor.name == name)
    }

    /// The actor type with this id.
    pub fn actor_of(&self, kind: ActorType) -> Option<&ActorSchema> {
        self.actors.iter().find(|actor| actor.kind() == kind)
    }

    /// The display name of an actor: `Folder/7`.
    pub fn show(&self, actor: &ActorId) -> String {
        match self.actor_of(actor.kind) {
            Some(kind) => format!("{}/{}", kind.name, actor.key),
            None => format!("#{:08x}/{}", actor.kind.number(), actor.key),
        }
    }
}

fn check_collisions<'a>(names: impl Iterator<Item = (&'a str, u32)>) -> Result<(), SchemaError> {
    let mut seen: Vec<(&str, u32)> = Vec::new();
    for (name, id) in names {
        if let Some((other, _)) = seen.iter().find(|(_, other)| *other == id) {
            return Err(SchemaError::Collision(other.to_string(), name.to_string()));
        }
        seen.push((name, id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(name: &str) -> ActorSchema {
        ActorSchema {
            name: name.into(),
            functions: vec![],
            properties: vec![],
        }
    }

    #[test]
    fn duplicate_types_are_rejected() {
        let mut schema = Schema::default();
        assert_eq!(schema.add(actor("Folder")), Ok(()));
        assert_eq!(
            schema.add(actor("Folder")),
            Err(SchemaError::Duplicate("Folder".into()))
        );
        assert_eq!(schema.actors().len(), 1);
    }

    #[test]
    fn colliding_names_are_rejected() {
        // A known pair of words with the same 32-bit FNV-1a hash.
        let mut schema = Schema::default();
        schema.add(actor("costarring")).unwrap();
        assert_eq!(
            schema.add(actor("liquid")),
            Err(SchemaError::Collision("costarring".into(), "liquid".into()))
        );
    }

    #[test]
    fn actors_display_with_the_name_of_their_type() {
        let mut schema = Schema::default();
        schema.add(actor("Folder")).unwrap();
        assert_eq!(schema.show(&ActorId::new(ActorType::of("Folder"), 7)), "Folder/7");
        assert_eq!(schema.show(&ActorId::new(ActorType::of("File"), "x")), "#2b183663/x");
    }
}
