//! Tables of the features and behaviours of the language.
//!
//! A new feature or behaviour needs a row here, a case in `Rule` and one in the evaluation. The parser stays unchanged.

use elastin_types::Resource;

use crate::Statistic;

/// An owner of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The server of the rule's subject.
    Server,
    /// Callers outside the cluster.
    Client,
    /// An actor, by type or by variable.
    Actor,
}

impl Owner {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Owner::Server => "a server",
            Owner::Client => "a client",
            Owner::Actor => "an actor",
        }
    }
}

/// The quantity behind a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The use of a resource.
    Use(Resource),
    /// The calls of the function in parentheses.
    Calls,
}

/// One feature.
pub(super) struct FeatureRow {
    pub(super) name: &'static str,
    pub(super) owners: &'static [Owner],
    pub(super) measure: Measure,
    pub(super) statistics: &'static [Statistic],
}

const USE: &[Statistic] = &[Statistic::Perc, Statistic::Size];

/// All features.
pub(super) const FEATURES: &[FeatureRow] = &[
    FeatureRow {
        name: "cpu",
        owners: &[Owner::Server, Owner::Actor],
        measure: Measure::Use(Resource::Cpu),
        statistics: USE,
    },
    FeatureRow {
        name: "mem",
        owners: &[Owner::Server, Owner::Actor],
        measure: Measure::Use(Resource::Mem),
        statistics: USE,
    },
    FeatureRow {
        name: "net",
        owners: &[Owner::Server, Owner::Actor],
        measure: Measure::Use(Resource::Net),
        statistics: USE,
    },
    FeatureRow {
        name: "call",
        owners: &[Owner::Client, Owner::Actor],
        measure: Measure::Calls,
        statistics: &Statistic::ALL,
    },
];

/// A parameter of a behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    Actor,
    Types,
    Resource,
}

impl Parameter {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Parameter::Actor => "an actor",
            Parameter::Types => "a set of types in braces",
            Parameter::Resource => "a resource (`cpu`, `mem` or `net`)",
        }
    }
}

/// One behaviour.
pub(super) struct BehaviourRow {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) example: &'static str,
}

/// All behaviours.
pub(super) const BEHAVIOURS: &[BehaviourRow] = &[
    BehaviourRow {
        name: "balance",
        parameters: &[Parameter::Types, Parameter::Resource],
        example: "balance({Folder}, cpu)",
    },
    BehaviourRow {
        name: "reserve",
        parameters: &[Parameter::Actor, Parameter::Resource],
        example: "reserve(fo, cpu)",
    },
    BehaviourRow {
        name: "colocate",
        parameters: &[Parameter::Actor, Parameter::Actor],
        example: "colocate(fo, fi)",
    },
    BehaviourRow {
        name: "separate",
        parameters: &[Parameter::Actor, Parameter::Actor],
        example: "separate(a, b)",
    },
    BehaviourRow {
        name: "pin",
        parameters: &[Parameter::Actor],
        example: "pin(fo)",
    },
];

/// Whether this is the name of a behaviour.
pub(crate) fn is_behaviour(name: &str) -> bool {
    BEHAVIOURS.iter().any(|row| row.name == name)
}

/// Names with a meaning of their own, which neither types nor variables can have.
pub(super) const RESERVED: [&str; 3] = ["server", "client", "any"];
