//! `cargo xtask verify`: the one check, by hand and in CI.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{bench, dependencies, layers, names, run};

/// One step of the check.
struct Step {
    name: &'static str,
    check: Check,
}

enum Check {
    /// Cargo with these arguments and variables must succeed.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// This function must succeed.
    Own(fn() -> Result<()>),
}

/// All steps, the fastest first.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        check: Check::Cargo(&["fmt", "--all", "--check"], &[]),
    },
    Step {
        name: "layers",
        check: Check::Own(layers::check),
    },
    Step {
        name: "names",
        check: Check::Own(names::check),
    },
    Step {
        name: "dependencies",
        check: Check::Own(dependencies::check),
    },
    Step {
        name: "lint",
        check: Check::Cargo(
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ],
            &[],
        ),
    },
    Step {
        name: "benches",
        check: Check::Own(bench::check),
    },
    Step {
        name: "fuzz",
        check: Check::Own(fuzz_targets),
    },
    Step {
        name: "test",
        check: Check::Cargo(
            &[
                "test",
                "--workspace",
                "--lib",
                "--bins",
                "--tests",
                "--examples",
                "--quiet",
            ],
            &[],
        ),
    },
    Step {
        name: "models",
        check: Check::Cargo(
            &[
                "test",
                "-p",
                "elastin-runtime",
                "--features",
                "loom",
                "--lib",
                "--quiet",
                "models",
            ],
            &[],
        ),
    },
    Step {
        name: "doctest",
        check: Check::Cargo(&["test", "--workspace", "--doc", "--quiet"], &[]),
    },
    Step {
        name: "doc",
        check: Check::Cargo(
            &["doc", "--workspace", "--no-deps", "--quiet"],
            &[("RUSTDOCFLAGS", "-D warnings")],
        ),
    },
];

/// Checks that the fuzz targets build, without the library that runs them, which needs a C++ compiler.
fn fuzz_targets() -> Result<()> {
    // The same target directory as everything else, so that shared dependencies are checked once.
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    let command = [
        "check",
        "--quiet",
        "--no-default-features",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target-dir",
        &target,
    ];
    run::cargo_with(&command, &[])
}

/// The parts of the toolchain that the steps need, with their rustup components.
const PARTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Checks everything, or only the steps of these names.
pub(crate) fn verify(names: &[&str]) -> Result<()> {
    let steps = chosen(names)?;
    install_missing()?;
    let start = Instant::now();
    for step in &steps {
        println!("verify: {} …", step.name);
        let start = Instant::now();
        if let Err(error) = step.check() {
            let name = step.name;
            bail!("{error:#}\nverify stopped at the step `{name}`; to run it alone: cargo xtask verify {name}");
        }
        println!("verify: {} is fine ({:.1} s)", step.name, start.elapsed().as_secs_f64());
    }
    println!("verify: all is fine ({:.1} s)", start.elapsed().as_secs_f64());
    Ok(())
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Step>> {
    if names.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let find = |name: &&str| {
        STEPS.iter().find(|step| step.name == *name).with_context(|| {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            format!("there is no step `{name}`; the steps are {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// Installs the missing parts of the toolchain.
fn install_missing() -> Result<()> {
    for (part, component) in PARTS {
        if !run::has_cargo_part(part) {
            println!("verify: `cargo {part}` is missing; installing the component {component}");
            run::install_component(component)?;
        }
    }
    Ok(())
}

impl Step {
    fn check(&self) -> Result<()> {
        match self.check {
            Check::Cargo(arguments, variables) => run::cargo_with(arguments, variables),
            Check::Own(check) => check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name() {
        let names = |steps: Vec<&'static Step>| steps.iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(chosen(&[]).unwrap()).len(), STEPS.len());
        assert_eq!(names(chosen(&["lint", "format"]).unwrap()), ["lint", "format"]);
        let error = chosen(&["lunt"]).err().unwrap().to_string();
        assert_eq!(
            error,
            "there is no step `lunt`; the steps are format, layers, names, dependencies, lint, benches, fuzz, test, models, doctest, doc"
        );
    }
}
