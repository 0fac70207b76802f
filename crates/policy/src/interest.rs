//! What profiling must gather so that a policy can be evaluated.

use std::collections::BTreeSet;

use elastin_types::{ActorType, Method, Property};
use serde::{Deserialize, Serialize};

/// The types, functions and properties that a policy's rules speak of; `any` stands for every type of the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interest {
    /// The types whose actors must be listed.
    pub kinds: BTreeSet<ActorType>,
    /// The functions whose calls must be counted, with the type that is called.
    pub methods: BTreeSet<(ActorType, Method)>,
    /// The properties whose references must be gathered, with the type that holds them.
    pub properties: BTreeSet<(ActorType, Property)>,
}
