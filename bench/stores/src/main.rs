//! The speed of the stores: durable writes of concurrent writers, as a ratio to one commit per write in the same run.
//!
//! `cargo xtask bench stores` prints the table and writes `target/bench/stores.json`.

mod load;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bench_table::{Goal, Row, Samples, Table};
use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState};
use elastin_stores::memory::MemoryState;
use elastin_stores::secret::Secret;
use elastin_stores::served::{StoreClient, serve};
use tokio::net::TcpListener;

use load::{commit_per_write, save_rate};

/// The number of concurrent writers.
const WRITERS: u64 = 64;
/// The size of each state.
const STATE_BYTES: usize = 256;
/// The number of measurements of each store, alternating so that a disturbance affects all of them.
const ROUNDS: usize = 5;
/// The duration of one measurement.
const TIME: Duration = Duration::from_secs(1);
/// The ratio that the embedded store must reach with all writers.
const GOAL: f64 = 10.0;

fn main() -> Result<()> {
    let results = Path::new("target/bench");
    std::fs::create_dir_all(results)?;
    // On the disk of the working directory: a temporary directory may be in memory, where a sync is free.
    let directory = tempfile::tempdir_in(results)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let table = runtime.block_on(measure(directory.path()))?;
    table.finish("stores")
}

async fn measure(directory: &Path) -> Result<Table> {
    let single = redb::Database::create(directory.join("single"))?;
    let memory = Arc::new(MemoryState::start());
    let embedded = Arc::new(EmbeddedState::open(directory.join("state"))?);
    let coordination = Arc::new(EmbeddedCoordination::open(directory.join("coordination"))?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let secret = Secret::generate();
    let server = serve(listener, embedded.clone(), coordination, secret.clone())?;
    let client = Arc::new(StoreClient::connect(server.address(), &secret).await?);

    let mut base = Samples::default();
    let mut one = Samples::default();
    let mut many = Samples::default();
    let mut served = Samples::default();
    let mut in_memory = Samples::default();
    for _ in 0..ROUNDS {
        tokio::task::block_in_place(|| {
            base.add(commit_per_write(&single, STATE_BYTES, TIME)?);
            one.add(save_rate(&embedded, 1, STATE_BYTES, TIME)?);
            many.add(save_rate(&embedded, WRITERS, STATE_BYTES, TIME)?);
            served.add(save_rate(&client, WRITERS, STATE_BYTES, TIME)?);
            in_memory.add(save_rate(&memory, WRITERS, STATE_BYTES, TIME)?);
            anyhow::Ok(())
        })?;
    }
    let row = |name: String, rate: &Samples| Row::new(name, "writes/s", rate, "redb, one commit per write", &base);
    Ok(Table {
        rows: vec![
            row("embedded, 1 writer".to_owned(), &one),
            row(format!("embedded, {WRITERS} writers"), &many).goal(Goal::AtLeast(GOAL)),
            row(format!("served from the same file, {WRITERS} writers"), &served),
            row(format!("memory, {WRITERS} writers"), &in_memory),
        ],
    })
}
