//! Policy test files: snapshots with the actions expected of a policy, written with names instead of ids.
//!
//! ```json
//! { "schema": { "Folder": { "functions": ["open"], "properties": { "files": "File" } }, "File": {} },
//!   "cases": [ {
//!     "name": "a hot folder gets a server of its own",
//!     "servers": { "n1": { "cpu": 90 } },
//!     "actors": {
//!       "Folder/1": { "on": "n1", "refers": { "files": ["File/1"] },
//!                     "called": [ { "by": "client", "with": "open", "count": 50 } ] },
//!       "File/1":   { "on": "n1" } },
//!     "expect": [ "reserve(Folder/1, cpu)", "colocate(Folder/1, File/1)" ] } ] }
//! ```

mod show;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorSchema, FunctionSchema, PropertySchema, Schema, SchemaError};
use serde::{Deserialize, Serialize};

pub use show::{distinct_actions, parse_actor, show_action};

use crate::{Index, Policy, Scope};
use show::actors_of;

/// A policy test file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenarios {
    /// The application's actor types by name, if the file includes them.
    #[serde(default)]
    pub schema: Option<BTreeMap<String, ScenarioType>>,
    /// The cases.
    pub cases: Vec<Scenario>,
}

/// An actor type in the short form of test files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioType {
    /// The names of its functions.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Its properties, each with the type that it refers to.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

/// One test case: measurements, and the actions that the policy must propose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name of the case.
    pub name: String,
    /// The length of the period; one minute by default.
    #[serde(default = "minute")]
    pub period_seconds: f64,
    /// The servers, by name: `n` and a number.
    pub servers: BTreeMap<String, ScenarioServer>,
    /// The actors, by type and key, such as `Folder/1`.
    #[serde(default)]
    pub actors: BTreeMap<String, ScenarioActor>,
    /// All distinct actions that the policy proposes, such as `reserve(Folder/1, cpu)`, with `on n1` after a `balance`.
    /// A `separate` of a rule between types is checked only if it is listed.
    #[serde(default)]
    pub expect: Vec<String>,
}

fn minute() -> f64 {
    60.0
}

/// The resource usage of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioServer {
    /// CPU usage.
    #[serde(default)]
    pub cpu: ScenarioUsage,
    /// Memory usage.
    #[serde(default)]
    pub mem: ScenarioUsage,
    /// Network usage.
    #[serde(default)]
    pub net: ScenarioUsage,
}

/// The usage of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScenarioUsage {
    /// The amount used out of a capacity of 100.
    Percent(f64),
    /// The amount used and the capacity; a null capacity is unknown.
    Of(f64, Option<f64>),
}

impl Default for ScenarioUsage {
    fn default() -> Self {
        ScenarioUsage::Percent(0.0)
    }
}

/// An actor's measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioActor {
    /// The server it is on.
    pub on: String,
    /// CPU usage, in the unit of its server's capacity.
    #[serde(default)]
    pub cpu: f64,
    /// Memory usage.
    #[serde(default)]
    pub mem: f64,
    /// Network usage.
    #[serde(default)]
    pub net: f64,
    /// Calls received.
    #[serde(default)]
    pub called: Vec<ScenarioCalled>,
    /// Calls made to actors that are not listed.
    #[serde(default)]
    pub calls: Vec<ScenarioCalls>,
    /// The targets of its properties.
    #[serde(default)]
    pub refers: BTreeMap<String, Vec<String>>,
}

/// Calls that an actor received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioCalled {
    /// `client` or an actor.
    pub by: String,
    /// The function.
    pub with: String,
    /// The number of calls.
    pub count: u64,
    /// Their total size in bytes.
    #[serde(default)]
    pub bytes: u64,
}

/// Calls that an actor made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioCalls {
    /// The actor that was called.
    pub to: String,
    /// The function.
    pub with: String,
    /// The number of calls.
    pub count: u64,
    /// Their total size in bytes.
    #[serde(default)]
    pub bytes: u64,
}

/// A test file that can't be used; no case was run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The text is not a test file.
    #[error("not a policy test file: {0}")]
    Malformed(String),
    /// The schema is invalid.
    #[error("the schema of the test file is invalid: {0}")]
    Schema(#[from] SchemaError),
    /// A case is invalid or refers to something that does not exist.
    #[error("case `{case}`: {problem}")]
    Case {
        /// The case.
        case: String,
        /// The problem.
        problem: String,
    },
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScenarioResult {
    /// The case.
    pub name: String,
    /// Expected, but not proposed.
    pub missing: Vec<String>,
    /// Proposed, but not expected.
    pub unexpected: Vec<String>,
}

impl ScenarioResult {
    /// Whether the policy proposed exactly the expected actions.
    pub fn passed(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }
}

impl Scenarios {
    /// Parses a test file.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        serde_json::from_str(text).map_err(|error| ScenarioError::Malformed(error.to_string()))
    }

    /// The schema that the file includes, if any.
    pub fn schema(&self) -> Result<Option<Schema>, ScenarioError> {
        self.schema.as_ref().map(schema).transpose()
    }

    /// Runs a policy against all cases.
    pub fn run(&self, policy: &Policy, schema: &Schema) -> Result<Vec<ScenarioResult>, ScenarioError> {
        self.cases.iter().map(|case| case.run(policy, schema)).collect()
    }
}

/// Builds a schema from types in short form.
fn schema(types: &BTreeMap<String, ScenarioType>) -> Result<Schema, ScenarioError> {
    let mut schema = Schema::default();
    for (name, short) in types {
        let function = |name: &String| FunctionSchema {
            name: name.clone(),
            parameters: Vec::new(),
            reply: "()".into(),
            read_only: false,
        };
        let property = |(name, target): (&String, &String)| PropertySchema {
            name: name.clone(),
            target: target.clone(),
        };
        schema.add(ActorSchema {
            name: name.clone(),
            functions: short.functions.iter().map(function).collect(),
            properties: short.properties.iter().map(property).collect(),
        })?;
    }
    Ok(schema)
}

/// Parses a schema, either as an application prints it or in the short form of test files.
pub fn parse_schema(text: &str) -> Result<Schema, ScenarioError> {
    if let Ok(whole) = serde_json::from_str::<Schema>(text) {
        return Ok(whole);
    }
    let short: BTreeMap<String, ScenarioType> =
        serde_json::from_str(text).map_err(|error| ScenarioError::Malformed(error.to_string()))?;
    schema(&short)
}

impl Scenario {
    /// Runs a policy against this case.
    pub fn run(&self, policy: &Policy, schema: &Schema) -> Result<ScenarioResult, ScenarioError> {
        let snapshot = self.snapshot(schema)?;
        let index = Index::new(&snapshot);
        let fired = policy.evaluate(&index, Scope::Whole);
        let proposed: BTreeSet<String> = distinct_actions(&fired, schema).into_iter().collect();
        let mut expected: BTreeSet<String> = BTreeSet::new();
        for text in &self.expect {
            expected.insert(self.expected(text, schema)?);
        }
        let by_type_rule = |text: &&String| {
            let pair = actors_of(text, "separate(", schema);
            !matches!(&pair[..], [Some(one), Some(other)] if policy
                .type_separations()
                .any(|rule| policy.separates(&index, rule, one, other)))
        };
        Ok(ScenarioResult {
            name: self.name.clone(),
            missing: expected.difference(&proposed).filter(by_type_rule).cloned().collect(),
            unexpected: proposed.difference(&expected).cloned().collect(),
        })
    }

    /// Normalises an expected action to the textual form of proposed ones.
    fn expected(&self, text: &str, schema: &Schema) -> Result<String, ScenarioError> {
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for relation in ["colocate(", "separate("] {
            match &actors_of(&plain, relation, schema)[..] {
                [] => {}
                [Some(one), Some(other)] => {
                    let (one, other) = (one.min(other), one.max(other));
                    return Ok(format!("{relation}{}, {})", schema.show(one), schema.show(other)));
                }
                _ => return Err(self.error(format!("`{text}` does not name two actors"))),
            }
        }
        Ok(plain)
    }
}
