//! The actor types of the paper's applications.

use elastin_types::{ActorId, ActorSchema, ActorType, FunctionSchema, Property, PropertySchema, References, Schema};

/// A schema from lines such as `Folder open : files File`: a type, its functions, and its properties with their types.
pub(crate) fn schema(lines: &[&str]) -> Schema {
    let mut schema = Schema::default();
    for line in lines {
        let (head, properties) = line.split_once(':').unwrap_or((line, ""));
        let mut words = head.split_whitespace();
        let name = words.next().expect("a type has a name").to_owned();
        let functions = words
            .map(|function| FunctionSchema {
                name: function.to_owned(),
                parameters: Vec::new(),
                reply: "()".to_owned(),
                read_only: false,
            })
            .collect();
        let words: Vec<&str> = properties.split_whitespace().collect();
        let properties = words
            .chunks(2)
            .map(|property| PropertySchema {
                name: property[0].to_owned(),
                target: property[1].to_owned(),
            })
            .collect();
        let actor = ActorSchema {
            name,
            functions,
            properties,
        };
        schema.add(actor).expect("types have different names");
    }
    schema
}

pub(crate) fn actor(kind: &str, key: u64) -> ActorId {
    ActorId::new(ActorType::of(kind), key)
}

/// A property that refers to some actors.
pub(crate) fn references(property: &str, actors: Vec<ActorId>) -> Vec<References> {
    vec![References {
        property: Property::of(property),
        actors,
    }]
}
