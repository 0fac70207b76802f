//! Bytes of an idle actor that was called once, registry included. Ours also includes the state of the node around the
//! runtime: the entries of the directory and of the host.
//!
//! Each contender is measured in a process of its own, so that nothing of another is counted.

use std::hint::black_box;

use anyhow::{Context, Result, bail};

use crate::contender::Contender;

/// The first argument of the child process.
pub const CHILD: &str = "memory-child";

/// The bytes per actor of a contender.
pub fn measure(contender: &Contender) -> Result<f64> {
    let name = contender.name;
    let child = std::process::Command::new(std::env::current_exe()?)
        .args([CHILD, name])
        .output()?;
    if !child.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&child.stderr));
    }
    Ok(String::from_utf8(child.stdout)?.trim().parse()?)
}

/// Runs the child process, which prints the bytes per actor.
pub fn child(contender: &Contender) -> Result<()> {
    let before = resident()?;
    let mut after = Ok(0);
    (contender.hold)(contender.held, &mut || after = black_box(resident()));
    println!("{}", (after? - before) as f64 / contender.held as f64);
    Ok(())
}

/// The resident bytes of this process.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS is missing")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}
