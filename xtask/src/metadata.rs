//! The metadata of a workspace, as cargo reports it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run;

/// The output of `cargo metadata`.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    /// Absent with `--no-deps`.
    resolve: Option<Resolve>,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) targets: Vec<Target>,
    /// All dependencies that its manifest declares.
    pub(crate) dependencies: Vec<Declared>,
}

/// A dependency as a manifest declares it.
#[derive(Deserialize)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// Its path, if it is part of this repository.
    pub(crate) path: Option<String>,
    /// Whether only a feature turns it on.
    pub(crate) optional: bool,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// The dependency graph by package name, without dev-dependencies.
#[derive(Default)]
pub(crate) struct Graph {
    /// The packages of the workspace.
    pub(crate) members: Vec<String>,
    pub(crate) dependencies: BTreeMap<String, Vec<String>>,
}

impl Metadata {
    /// Loads the metadata of the workspace of this manifest, whose path is relative to the root.
    pub(crate) fn load(manifest: &str, options: &[&str]) -> Result<Self> {
        let mut arguments = vec!["metadata", "--format-version", "1", "--manifest-path", manifest];
        arguments.extend(options);
        let output = run::cargo_output(&arguments)?;
        serde_json::from_slice(&output).context("cargo's metadata can't be understood")
    }

    /// The dependency graph.
    pub(crate) fn graph(&self) -> Result<Graph> {
        let resolve = self.resolve.as_ref().context("cargo's metadata has no dependencies")?;
        let names: BTreeMap<&str, &str> = self
            .packages
            .iter()
            .map(|package| (package.id.as_str(), package.name.as_str()))
            .collect();
        let name = |id: &str| names.get(id).copied().unwrap_or(id).to_owned();
        let mut graph = Graph {
            members: self.workspace_members.iter().map(|id| name(id)).collect(),
            ..Graph::default()
        };
        for node in &resolve.nodes {
            let used = node.deps.iter().filter(|dependency| dependency.is_used());
            let used = used.map(|dependency| name(&dependency.pkg)).collect::<Vec<_>>();
            // Versions of a package count as one, because layers do not depend on versions.
            graph.dependencies.entry(name(&node.id)).or_default().extend(used);
        }
        Ok(graph)
    }
}

impl Dependency {
    /// Whether it is more than a dev-dependency.
    fn is_used(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}
