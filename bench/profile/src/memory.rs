//! Bytes of an idle actor that was called once, with profiling on and off, each in a process of its own.

use anyhow::{Context, Result, ensure};
use bench_table::Samples;
use elastin::{Actor, Ref, handlers};
use serde::{Deserialize, Serialize};

/// The first argument of the child process.
pub(crate) const CHILD: &str = "memory-child";

/// The number of actors: enough to make fixed costs negligible.
const ACTORS: u64 = 200_000;

#[derive(Actor, Serialize, Deserialize, Default)]
struct Idle {
    calls: u64,
}

#[handlers]
impl Idle {
    fn call(&mut self) {
        self.calls += 1;
    }
}

/// The bytes per actor.
pub(crate) fn measure(profiling: bool) -> Result<Samples> {
    let word = if profiling { "on" } else { "off" };
    let mut samples = Samples::default();
    for _ in 0..3 {
        let child = std::process::Command::new(std::env::current_exe()?)
            .args([CHILD, word])
            .output()?;
        ensure!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        samples.add(String::from_utf8(child.stdout)?.trim().parse()?);
    }
    Ok(samples)
}

/// Runs the child process, which prints the bytes per actor.
pub(crate) fn child(profiling: bool) -> Result<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    tokio.block_on(async {
        let runtime = crate::builder(1, profiling).register::<Idle>().build()?;
        let before = resident()?;
        for key in 0..ACTORS {
            let idle: Ref<Idle> = runtime.client().actor(key);
            idle.call().await?;
        }
        println!("{}", (resident()? - before) as f64 / ACTORS as f64);
        anyhow::Ok(())
    })
}

/// The resident bytes of this process.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: u64 = line
        .context("VmRSS is missing")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kibibytes * 1024)
}
