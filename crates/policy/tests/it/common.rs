//! Example policies, the schema of the tests, and random numbers.

use std::path::PathBuf;

use elastin_policy::{Compiled, Policy, Scenarios, compile, parse_schema};
use elastin_types::Schema;

/// The policies in `examples/policies`, by name.
pub(crate) const POLICIES: [&str; 9] = [
    "b-plus-tree",
    "cassandra",
    "e-store",
    "halo-presence",
    "media-service",
    "metadata-server",
    "pagerank",
    "piccolo",
    "zexpander",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies")
}

/// A file of `examples/policies`.
pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The source of each example policy.
pub(crate) fn sources() -> Vec<String> {
    POLICIES.map(|name| read(&format!("{name}.epl"))).into()
}

/// The names of all files of `examples/policies`, sorted.
pub(crate) fn files() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("`examples/policies` exists");
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The schema that most tests use.
pub(crate) fn schema() -> Schema {
    parse_schema(
        r#"{ "Folder":  { "functions": ["open", "list"], "properties": { "files": "File", "parent": "Folder" } },
             "File":    { "functions": ["read", "write"] },
             "Session": { "functions": ["join"], "properties": { "players": "Player" } },
             "Player":  { "functions": ["beat"], "properties": { "session": "Session" } } }"#,
    )
    .unwrap()
}

/// An application of the examples: its policy as compiled, its test cases and its schema.
pub(crate) fn example(name: &str) -> (Compiled, Scenarios, Schema) {
    example_with(name, &read(&format!("{name}.epl")))
}

/// The same application with another policy.
pub(crate) fn example_with(name: &str, source: &str) -> (Compiled, Scenarios, Schema) {
    let scenarios = Scenarios::parse(&read(&format!("{name}.test.json"))).expect("the test file is well formed");
    let schema = scenarios.schema().unwrap().expect("the test file has a schema");
    let compiled = compile(&format!("{name}.epl"), source, &schema).unwrap_or_else(|error| panic!("{error}"));
    (compiled, scenarios, schema)
}

/// Compiles an error-free policy for [`schema`].
pub(crate) fn policy(source: &str) -> Policy {
    compile("test.epl", source, &schema())
        .unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
        .policy
}

/// SplitMix64, so that a seed decides a whole test.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// An index into a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}
