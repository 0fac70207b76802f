//! `cargo xtask bench SUITE`: a suite is a binary of the `bench/` workspace, which writes `target/bench/SUITE.json`.
//!
//! The benches are a workspace of their own, so that the libraries that Elastin is compared with are not among its own
//! dependencies.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::metadata::{Declared, Metadata, Package};
use crate::run;

const MANIFEST: &str = "bench/Cargo.toml";

/// The programs needed to build a suite, with their Debian packages.
const BUILD_TOOLS: &[(&str, &str, &str)] = &[("remote", "protoc", "protobuf-compiler")];

/// Runs a suite.
pub(crate) fn bench(suite: &str, arguments: &[&str]) -> Result<()> {
    let suites = suites()?;
    if !suites.iter().any(|known| known == suite) {
        bail!("there is no suite `{suite}`; the suites are {}", suites.join(", "));
    }
    for (_, program, package) in BUILD_TOOLS.iter().filter(|(of, ..)| *of == suite) {
        if !run::has_program(program) {
            bail!("the suite `{suite}` needs `{program}` to be built: apt-get install {package}");
        }
    }
    let results = run::root().join("target/bench");
    std::fs::create_dir_all(&results)?;
    // Selects the package, not the binary: otherwise cargo would enable library features that only other suites need.
    // For the same reason, a build of the whole bench workspace is of no use here.
    let package = format!("bench-{suite}");
    let mut command = vec![
        "run",
        "--release",
        "--quiet",
        "--manifest-path",
        MANIFEST,
        "--package",
        &package,
        "--",
    ];
    command.extend(arguments);
    run::cargo_with(&command, &[])?;
    let file = results.join(format!("{suite}.json"));
    if !file.exists() {
        bail!("the suite succeeded, but has not written {}", file.display());
    }
    println!("bench: the results are in {}", file.display());
    Ok(())
}

/// Checks the suites that need only dependencies of Elastin itself, without optional peers. The peers take minutes to build.
pub(crate) fn check() -> Result<()> {
    let ours = Metadata::load("Cargo.toml", &["--no-deps"])?;
    let packages = names_without_peers(&ours.packages, &suite_packages()?);
    // The same target directory as everything else, so that shared dependencies are checked once.
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    let mut command = vec!["check", "--quiet", "--no-default-features", "--manifest-path", MANIFEST];
    command.extend(["--target-dir", &target]);
    command.extend(packages.iter().flat_map(|package| ["--package", package.as_str()]));
    run::cargo_with(&command, &[])
}

/// The packages whose required dependencies are all part of this repository or dependencies of `ours`.
fn names_without_peers(ours: &[Package], suites: &[Package]) -> Vec<String> {
    let used = ours.iter().flat_map(|package| &package.dependencies);
    let used: BTreeSet<&str> = used.map(|dependency| dependency.name.as_str()).collect();
    let is_ours = |dependency: &Declared| {
        dependency.optional || dependency.path.is_some() || used.contains(dependency.name.as_str())
    };
    let without_peers = suites.iter().filter(|suite| suite.dependencies.iter().all(is_ours));
    without_peers.map(|suite| suite.name.clone()).collect()
}

/// Prints the names of all suites.
pub(crate) fn list() -> Result<()> {
    for suite in suites()? {
        println!("{suite}");
    }
    Ok(())
}

fn suites() -> Result<Vec<String>> {
    let targets = suite_packages()?.into_iter().flat_map(|package| package.targets);
    let binaries = targets.filter(|target| target.kind.iter().any(|kind| kind == "bin"));
    Ok(binaries.map(|target| target.name).collect())
}

fn suite_packages() -> Result<Vec<Package>> {
    if !run::root().join(MANIFEST).exists() {
        bail!("there are no suites: {MANIFEST} does not exist");
    }
    Ok(Metadata::load(MANIFEST, &["--no-deps"])?.packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let declared = |(name, optional): &(&str, bool)| Declared {
            name: (*name).into(),
            path: name.starts_with("elastin").then(|| format!("crates/{name}")),
            optional: *optional,
        };
        Package {
            id: name.into(),
            name: name.into(),
            targets: Vec::new(),
            dependencies: dependencies.iter().map(declared).collect(),
        }
    }

    #[test]
    fn only_suites_with_required_peers_are_left_out() {
        let ours = [package("elastin", &[("tokio", false)])];
        let alone = package("bench-sim", &[("tokio", false), ("elastin", false)]);
        let with_peer = package("bench-local", &[("tokio", false), ("actix", false)]);
        let with_optional_peer = package("bench-remote", &[("tokio", false), ("tonic", true)]);
        let checked = names_without_peers(&ours, &[alone, with_peer, with_optional_peer]);
        assert_eq!(checked, ["bench-sim", "bench-remote"]);
    }
}
