//! `elastin policy`: check, format, compile, explain and test policies.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use elastin_policy::{Compiled, Diagnostics, Index, Policy, Scenarios, Scope, compile, decode, format, parse_schema};
use elastin_types::Schema;

use crate::output::{print, print_json};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check a policy against an application's actors
    Check(Checked),
    /// Format policies in place
    Fmt {
        /// The policies
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Change nothing; fail if a file is not formatted
        #[arg(long)]
        check: bool,
        /// List the files that were not formatted as JSON
        #[arg(long)]
        json: bool,
    },
    /// Compile a policy to the file that nodes load
    Compile {
        #[command(flatten)]
        checked: Checked,
        /// The file for the compiled policy; standard output by default
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Show for each rule the actors that made it fire, or the comparison that failed and by how much
    Explain {
        #[command(flatten)]
        checked: Checked,
        /// The snapshots: a file of test cases, whose expectations are ignored
        snapshots: PathBuf,
    },
    /// Run a file of test cases: snapshots with the actions that a policy must propose
    Test {
        #[command(flatten)]
        checked: Checked,
        /// The test cases
        cases: PathBuf,
    },
}

/// A policy and the schema that it is checked against.
#[derive(Args)]
pub(crate) struct Checked {
    /// The policy
    policy: PathBuf,
    /// The application's actor types, as its program's `schema` command prints them; files of test cases may include
    /// their own
    #[arg(long)]
    schema: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Check(checked) => {
            checked.compile(checked.schema()?)?;
            if !checked.json {
                print(&format!("{} is fine\n", checked.policy.display()));
            }
            Ok(())
        }
        Command::Fmt { files, check, json } => fmt(files, *check, *json),
        Command::Compile { checked, output } => {
            let policy = checked.compile(checked.schema()?)?;
            match output {
                Some(file) => std::fs::write(file, policy.to_file()).with_context(|| file.display().to_string()),
                None => {
                    print(&policy.to_file());
                    Ok(())
                }
            }
        }
        Command::Explain { checked, snapshots } => explain(checked, snapshots),
        Command::Test { checked, cases } => test(checked, cases),
    }
}

impl Checked {
    fn schema(&self) -> anyhow::Result<Option<Schema>> {
        let Some(file) = &self.schema else { return Ok(None) };
        parse_schema(&read(file)?)
            .map(Some)
            .with_context(|| file.display().to_string())
    }

    /// Compiles the policy, and prints its diagnostics.
    fn compile(&self, schema: Option<Schema>) -> anyhow::Result<Policy> {
        let Some(schema) = schema else {
            bail!(
                "no schema: pass the application's actor types with --schema FILE (its program's `schema` command prints them)"
            );
        };
        let name = self.policy.display().to_string();
        let bytes = std::fs::read(&self.policy).with_context(|| name.clone())?;
        let compiled = decode(&name, &bytes).and_then(|source| compile(&name, &source, &schema));
        match compiled {
            Ok(Compiled { policy, warnings }) => {
                self.report(&warnings)?;
                Ok(policy)
            }
            Err(diagnostics) => {
                self.report(&diagnostics)?;
                bail!("{name} can't be used");
            }
        }
    }

    fn report(&self, diagnostics: &Diagnostics) -> anyhow::Result<()> {
        if self.json {
            print_json(&diagnostics.located().collect::<Vec<_>>())
        } else {
            let styled = std::io::stderr().is_terminal();
            eprint!(
                "{}",
                if styled {
                    diagnostics.render_styled()
                } else {
                    diagnostics.render()
                }
            );
            Ok(())
        }
    }

    /// The cases of a file, the schema that applies to them, and the policy compiled against it.
    fn with_cases(&self, file: &Path) -> anyhow::Result<(Scenarios, Schema, Policy)> {
        let named = || file.display().to_string();
        let cases = Scenarios::parse(&read(file)?).with_context(named)?;
        let schema = match self.schema()? {
            Some(schema) => Some(schema),
            None => cases.schema().with_context(named)?,
        };
        let policy = self.compile(schema.clone())?;
        let schema = schema.expect("a policy compiles only against a schema");
        Ok((cases, schema, policy))
    }
}

fn fmt(files: &[PathBuf], check: bool, json: bool) -> anyhow::Result<()> {
    let mut unformatted = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let source = read(file)?;
        let formatted = format(&name, &source).map_err(|diagnostics| anyhow::anyhow!("{}", diagnostics.render()))?;
        if formatted == source {
            continue;
        }
        if !check {
            std::fs::write(file, formatted).with_context(|| name.clone())?;
        }
        unformatted.push(name);
    }
    if json {
        print_json(&unformatted)?;
    }
    if check && !unformatted.is_empty() {
        bail!("not formatted: {}", unformatted.join(", "));
    }
    Ok(())
}

fn explain(checked: &Checked, file: &Path) -> anyhow::Result<()> {
    let (cases, schema, policy) = checked.with_cases(file)?;
    let mut explanations = Vec::new();
    for case in &cases.cases {
        let snapshot = case.snapshot(&schema).with_context(|| file.display().to_string())?;
        let explanation = policy.explain(&Index::new(&snapshot), Scope::Whole, &schema);
        if checked.json {
            explanations.push(explanation);
        } else {
            print(&format!("{}\n{}\n", case.name, explanation.render(&schema)));
        }
    }
    if checked.json {
        print_json(&explanations)
    } else {
        Ok(())
    }
}

fn test(checked: &Checked, file: &Path) -> anyhow::Result<()> {
    let (cases, schema, policy) = checked.with_cases(file)?;
    let results = cases
        .run(&policy, &schema)
        .with_context(|| file.display().to_string())?;
    let failed = results.iter().filter(|result| !result.passed()).count();
    if checked.json {
        print_json(&results)?;
    } else {
        for result in &results {
            print(&format!(
                "{} {}\n",
                if result.passed() { "ok    " } else { "FAILED" },
                result.name
            ));
            for action in &result.missing {
                print(&format!("         expected, not proposed: {action}\n"));
            }
            for action in &result.unexpected {
                print(&format!("         proposed, not expected: {action}\n"));
            }
        }
        print(&format!("{} passed, {failed} failed\n", results.len() - failed));
    }
    if failed == 0 {
        Ok(())
    } else {
        bail!("{failed} of {} cases failed", results.len())
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}
