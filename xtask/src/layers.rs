//! The layering check: crates depend on lower layers only, and pure crates do not reach the outside world.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::metadata::{Graph, Metadata};

/// The layers, lowest first: a crate may depend on crates of lower rows only. A layer of the picture in
/// `docs/architecture.md` can have several rows.
const LAYERS: &[&[&str]] = &[
    &["elastin-types", "elastin-golden", "elastin-test-servers"],
    &["elastin-policy", "elastin-protocol", "elastin-clock"],
    &["elastin-macros"],
    &["elastin-actor"],
    &["elastin-control"],
    &["elastin-runtime", "elastin-stores", "elastin-sim"],
    &["elastin-cluster"],
    &["elastin"],
    &["elastin-testkit"],
    &["metadata-server"],
    &["elastin-cli", "xtask"],
];

/// The pure crates: no async runtime, no operating system, no clock, no source of randomness.
const PURE: &[&str] = &[
    "elastin-types",
    "elastin-policy",
    "elastin-macros",
    "elastin-actor",
    "elastin-protocol",
    "elastin-control",
    "elastin-sim",
];

/// Crates that no pure crate may depend on, directly or indirectly.
const IMPURE: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "libc",
    "rustix",
    "rand",
    "getrandom",
    "fastrand",
];

/// Checks the workspace.
pub(crate) fn check() -> Result<()> {
    let graph = Metadata::load("Cargo.toml", &[])?.graph()?;
    let violations = violations(&graph);
    if !violations.is_empty() {
        bail!("the layers are broken:\n  {}", violations.join("\n  "));
    }
    Ok(())
}

/// Descriptions of all violations.
fn violations(graph: &Graph) -> Vec<String> {
    let rank: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(rank, row)| row.iter().map(move |name| (*name, rank)))
        .collect();
    let mut violations = Vec::new();
    for member in &graph.members {
        let Some(own) = rank.get(member.as_str()) else {
            violations.push(format!("`{member}` has no layer: give it one in xtask/src/layers.rs"));
            continue;
        };
        for dependency in graph.dependencies.get(member).into_iter().flatten() {
            if rank.get(dependency.as_str()).is_some_and(|other| other >= own) {
                violations.push(format!(
                    "`{member}` must not depend on `{dependency}`: dependencies point downwards"
                ));
            }
        }
        if PURE.contains(&member.as_str()) {
            let paths = IMPURE.iter().filter_map(|impure| path(graph, member, impure));
            violations
                .extend(paths.map(|path| format!("a pure crate reaches the outside world: {}", path.join(" → "))));
        }
    }
    violations
}

/// The shortest path of dependencies from `from` to `to`, if there is one.
fn path(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut frontier = vec![from];
    while !frontier.is_empty() && !came_from.contains_key(to) {
        let mut next = Vec::new();
        for package in frontier {
            for dependency in graph.dependencies.get(package).into_iter().flatten() {
                if dependency != from && !came_from.contains_key(dependency.as_str()) {
                    came_from.insert(dependency, package);
                    next.push(dependency.as_str());
                }
            }
        }
        frontier = next;
    }
    let mut path = vec![to.to_owned()];
    let mut at = to;
    while at != from {
        at = came_from.get(at)?;
        path.push(at.to_owned());
    }
    path.reverse();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dependencies: &[(&str, &[&str])], expected: &[&str]) {
        let own = |name: &&str| name.starts_with("elastin") || *name == "newcomer";
        let graph = Graph {
            members: dependencies
                .iter()
                .map(|(name, _)| *name)
                .filter(own)
                .map(str::to_owned)
                .collect(),
            dependencies: dependencies
                .iter()
                .map(|(name, on)| ((*name).to_owned(), on.iter().map(|name| (*name).to_owned()).collect()))
                .collect(),
        };
        assert_eq!(violations(&graph), expected);
    }

    #[test]
    fn upward_dependencies_are_violations() {
        check(
            &[
                ("elastin-types", &["serde"]),
                ("elastin-protocol", &["elastin-types"]),
                ("elastin-runtime", &["elastin-types", "tokio"]),
            ],
            &[],
        );
        check(
            &[("elastin-types", &["elastin-policy"])],
            &["`elastin-types` must not depend on `elastin-policy`: dependencies point downwards"],
        );
        check(
            &[("elastin-stores", &["elastin-runtime"])],
            &["`elastin-stores` must not depend on `elastin-runtime`: dependencies point downwards"],
        );
        check(
            &[("newcomer", &[])],
            &["`newcomer` has no layer: give it one in xtask/src/layers.rs"],
        );
    }

    #[test]
    fn impure_dependencies_of_pure_crates_are_violations() {
        check(
            &[
                ("elastin-sim", &["helper"]),
                ("helper", &["helper", "deeper"]),
                ("deeper", &["helper", "tokio"]),
            ],
            &["a pure crate reaches the outside world: elastin-sim → helper → deeper → tokio"],
        );
    }
}
