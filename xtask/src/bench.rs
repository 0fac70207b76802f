//! `cargo xtask bench SUITE`: a suite is a binary of the `bench/` workspace, which writes `target/bench/SUITE.json`.
//!
//! The benches are a workspace of their own, so that the libraries that Elastin is compared with are not among its own
//! dependencies.

use anyhow::{Result, bail};

use crate::metadata::Metadata;
use crate::run;

const MANIFEST: &str = "bench/Cargo.toml";

/// Runs a suite.
pub(crate) fn bench(suite: &str, arguments: &[&str]) -> Result<()> {
    let suites = suites()?;
    if !suites.iter().any(|known| known == suite) {
        bail!("there is no suite `{suite}`; there are: {}", suites.join(", "));
    }
    let results = run::root().join("target/bench");
    std::fs::create_dir_all(&results)?;
    // The package, and not the binary: features that another suite needs of a library would be on otherwise.
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
        bail!("the suite ended well, but has not written {}", file.display());
    }
    println!("bench: the results are in {}", file.display());
    Ok(())
}

/// Prints the names of all suites.
pub(crate) fn list() -> Result<()> {
    for suite in suites()? {
        println!("{suite}");
    }
    Ok(())
}

fn suites() -> Result<Vec<String>> {
    if !run::root().join(MANIFEST).exists() {
        bail!("there are no suites: {MANIFEST} does not exist");
    }
    let metadata = Metadata::load(MANIFEST, &["--no-deps"])?;
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    let binaries = targets.filter(|target| target.kind.iter().any(|kind| kind == "bin"));
    Ok(binaries.map(|target| target.name).collect())
}
