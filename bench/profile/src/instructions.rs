//! Counts instructions with valgrind's callgrind, independent of the load of the machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use bench_table::Samples;

/// The lengths of two runs. The difference excludes setup and the first turns of a period, of which more are sampled.
/// A room at full load has many times as many turns in a period of a second.
const MESSAGES: [u64; 2] = [2000, 6000];

/// The number of counts of each, alternating: thread interleavings differ each time, which varies the number of
/// wake-ups.
const ROUNDS: usize = 3;

/// The instructions per message of the chat room, with profiling on and off.
pub(crate) fn of_chat(users: u64) -> Result<(Samples, Samples)> {
    let per_message = |profiling: &str| -> Result<f64> {
        let short = count(users, MESSAGES[0], profiling)?;
        let long = count(users, MESSAGES[1], profiling)?;
        Ok(long.saturating_sub(short) as f64 / (MESSAGES[1] - MESSAGES[0]) as f64)
    };
    let (mut on, mut off) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        on.add(per_message("on")?);
        off.add(per_message("off")?);
    }
    Ok((on, off))
}

fn count(users: u64, messages: u64, profiling: &str) -> Result<u64> {
    let directory = tempfile::tempdir_in("target/bench")?;
    let out = directory.path().join("callgrind");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args(["chat", &users.to_string(), &messages.to_string(), profiling])
        .output()
        .context("failed to run valgrind, which counts the instructions: install it")?;
    if !run.status.success() {
        bail!("the chat room failed: {}", String::from_utf8_lossy(&run.stderr));
    }
    total(&out)
}

/// Parses the total that callgrind wrote.
fn total(out: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(out)?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")));
    Ok(line.context("no total in callgrind's output")?.trim().parse()?)
}
