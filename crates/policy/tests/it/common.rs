//! What several tests need.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::PathBuf;

use elastin_policy::{Policy, compile, parse_schema};
use elastin_types::Schema;

/// The policies of the folder, in the order of their names.
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

/// A file of the folder of policies.
pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The names of all files of the folder, in order.
pub(crate) fn files() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of policies exists");
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

/// Compiles a policy for [`schema`] that has no mistakes.
pub(crate) fn policy(source: &str) -> Policy {
    compile("test.epl", source, &schema())
        .unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
        .policy
}
