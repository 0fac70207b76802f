//! What cargo knows about a workspace, as far as we ask.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run;

/// The answer of `cargo metadata`.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    /// Absent when dependencies were not asked for.
    resolve: Option<Resolve>,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) targets: Vec<Target>,
    /// What its manifest names, for whatever purpose.
    pub(crate) dependencies: Vec<Declared>,
}

/// A dependency as a manifest declares it.
#[derive(Deserialize)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// Where it is, if it is part of this repository.
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

/// Who depends on whom, by package name. Dependencies of tests only are left out.
#[derive(Default)]
pub(crate) struct Graph {
    /// The packages of the workspace.
    pub(crate) members: Vec<String>,
    pub(crate) dependencies: BTreeMap<String, Vec<String>>,
}

impl Metadata {
    /// Asks cargo about the workspace of this manifest, relative to the root.
    pub(crate) fn load(manifest: &str, options: &[&str]) -> Result<Self> {
        let mut arguments = vec!["metadata", "--format-version", "1", "--manifest-path", manifest];
        arguments.extend(options);
        let output = run::cargo_output(&arguments)?;
        serde_json::from_slice(&output).context("cargo's metadata can't be understood")
    }

    /// Who depends on whom.
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
            // Two versions of a package count as one: a layer is about what, not which.
            graph.dependencies.entry(name(&node.id)).or_default().extend(used);
        }
        Ok(graph)
    }
}

impl Dependency {
    /// Whether more than the tests need it.
    fn is_used(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}
