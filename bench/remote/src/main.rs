//! The speed of calls between processes, of moves and drains, and of the recovery after a crash.
//!
//! `cargo xtask bench remote` prints the table and writes `target/bench/remote.json`.

mod bodies;
mod calls;
mod claims;
mod contestant;
mod floor;
mod load;
mod losses;
mod moves;
mod ours;
#[cfg_attr(not(feature = "peers"), path = "peers_left_out.rs")]
mod peers;
mod process;
mod raw;
mod spinner;

use std::process::ExitCode;

use anyhow::{Result, bail};
use bench_table::Table;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["node", ..] => return ours::app().main(),
        ["spin"] => spinner::spin(),
        ["serve", name] => block_on(serve(name)),
        [] => block_on(measure("calls tls moves claims interleaving drain crash")),
        ["alone", name, in_flight] => block_on(calls::alone(name, in_flight)),
        ["only", parts] => block_on(measure(parts)),
        other => Err(anyhow::anyhow!("unknown arguments: {}", other.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

async fn serve(name: &str) -> Result<()> {
    match name {
        "raw" => raw::serve().await,
        "floor" => floor::serve().await,
        other => peers::serve(other).await,
    }
}

/// Measures some parts of the suite, by default all.
async fn measure(parts: &str) -> Result<()> {
    let mut rows = Vec::new();
    for part in parts.split(' ') {
        match part {
            "calls" => rows.extend(calls::rows().await?),
            "floors" => rows.extend(calls::floors().await?),
            "tls" => rows.extend(calls::encrypted().await?),
            "moves" => rows.extend(moves::rows().await?),
            "claims" => rows.extend(claims::rows().await?),
            "interleaving" => rows.push(moves::interleaving().await?),
            "drain" => rows.push(losses::drain().await?),
            "crash" => rows.extend([losses::crash().await?, losses::crash_over_etcd().await?]),
            other => bail!("unknown part: {other}"),
        }
    }
    Table { rows }.finish("remote")
}
