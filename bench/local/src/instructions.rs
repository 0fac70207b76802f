//! Instructions per operation, counted by valgrind's callgrind: unlike times they are the same in every run.
//!
//! The suite runs itself under callgrind with two numbers of operations; the difference excludes setup.

use std::process::Command;

use anyhow::{Context, Result};

use crate::contender::{Contender, ELASTIN};
use crate::ours;
use crate::workload::{MANY, Row};

/// The first argument of the child process.
pub const CHILD: &str = "operations-child";

/// The two numbers of operations. Enough that turns are sampled as in a long run.
const FEW: u64 = 100 * MANY;
const MORE: u64 = 140 * MANY;

/// The instructions per operation; `None` where there is no valgrind.
pub fn measure(contender: &Contender, row: Row) -> Result<Option<f64>> {
    let Some(few) = count(contender, row, FEW)? else {
        return Ok(None);
    };
    let more = count(contender, row, MORE)?.context("valgrind has disappeared")?;
    Ok(Some((more - few) / (MORE - FEW) as f64))
}

fn count(contender: &Contender, row: Row, operations: u64) -> Result<Option<f64>> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?);
    command.args([CHILD, contender.name, row.key(), &operations.to_string()]);
    let Ok(output) = command.output() else {
        return Ok(None);
    };
    let output_text = String::from_utf8_lossy(&output.stderr);
    let collected = output_text.lines().find_map(|line| line.split("Collected :").nth(1));
    let collected = collected.with_context(|| format!("no instruction count in callgrind's output: {output_text}"))?;
    Ok(Some(collected.trim().parse()?))
}

/// Runs the child process.
pub fn child(contender: &Contender, row: &str, operations: &str) -> Result<()> {
    let row = Row::ALL.iter().find(|known| known.key() == row);
    let measure = match contender.name {
        ELASTIN => ours::measure_slowed,
        _ => contender.measure,
    };
    measure(*row.context("there is no such row")?, operations.parse()?);
    Ok(())
}
