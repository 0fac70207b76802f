//! Durable turns of persistent actors per second in the embedded store, against one commit per turn.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench_table::Samples;
use bytes::Bytes;
use elastin::{Actor, Ref, ReplySender, SaveDone, SaveError, handlers};
use elastin_protocol::store::{StateRequest, StateStore};
use elastin_runtime::{Grant, Remote, Runtime};
use elastin_stores::embedded::EmbeddedState;
use elastin_types::{ActivationEpoch, ActorId, CallId, Message, Outcome};
use redb::{Database, TableDefinition};
use serde::{Deserialize, Serialize};

/// The number of actors that write concurrently.
pub(crate) const ACTORS: u64 = 64;

/// The duration of one measurement.
const TIME: Duration = Duration::from_secs(1);

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("states");

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
struct Account {
    balance: u64,
    note: String,
}

#[handlers]
impl Account {
    async fn pay_in(&mut self, amount: u64) -> u64 {
        self.balance += amount;
        self.note = format!("{:0>200}", self.balance);
        self.balance
    }
}

/// A remote side without other nodes: all actors are local, and their state goes into a file.
struct OnFile(EmbeddedState);

impl Remote for OnFile {
    fn may_activate_here(&self, _actor: &ActorId) -> Option<Grant> {
        let epoch = ActivationEpoch::default();
        Some(Grant { epoch, image: None })
    }

    fn send(&self, message: Arc<Message>, _reply: Option<ReplySender>) {
        panic!("all actors are local, but {message:?} was sent to another node");
    }

    fn reply(&self, call: CallId, _outcome: Outcome) {
        panic!("all callers are local, but the reply of {call:?} was sent to another node");
    }

    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        let actor = actor.clone();
        let save = StateRequest::Save { actor, epoch, state };
        let unavailable = |error: elastin_protocol::store::StateError| SaveError::Unavailable(error.to_string());
        self.0
            .submit(save, Box::new(move |saved| done(saved.map(drop).map_err(unavailable))));
    }

    fn passivated(&self, _actor: &ActorId, _epoch: ActivationEpoch) {}
}

/// Durable turns per second, and commits of one turn each.
pub(crate) fn measure(rounds: usize) -> Result<(Samples, Samples)> {
    // On the disk of the working directory: a temporary directory may be in memory, where a sync is free.
    let directory = tempfile::tempdir_in("target/bench")?;
    let single = Database::create(directory.path().join("single"))?;
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let runtime = start(&tokio, directory.path())?;
    let (mut turns, mut commits) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        commits.add(one_commit_per_turn(&single)?);
        turns.add(tokio.block_on(turns_per_second(&runtime))?);
    }
    Ok((turns, commits))
}

fn start(tokio: &tokio::runtime::Runtime, directory: &Path) -> Result<Runtime> {
    let _entered = tokio.enter();
    let store = OnFile(EmbeddedState::open(directory.join("state"))?);
    Ok(crate::builder(2, true)
        .register::<Account>()
        .remote(Arc::new(store))
        .build()?)
}

async fn turns_per_second(runtime: &Runtime) -> Result<f64> {
    let began = Instant::now();
    let mut writers = Vec::new();
    for key in 0..ACTORS {
        let account: Ref<Account> = runtime.client().actor(key);
        writers.push(tokio::spawn(async move {
            let mut turns = 0_u64;
            while began.elapsed() < TIME {
                account.pay_in(1).await?;
                turns += 1;
            }
            anyhow::Ok(turns)
        }));
    }
    let mut turns = 0;
    for writer in writers {
        turns += writer.await??;
    }
    Ok(turns as f64 / began.elapsed().as_secs_f64())
}

/// The rate of a store without batches: each turn's state in a commit of its own.
fn one_commit_per_turn(database: &Database) -> Result<f64> {
    let mut account = Account::default();
    let began = Instant::now();
    let mut turns = 0_u64;
    while began.elapsed() < TIME {
        account.balance += 1;
        account.note = format!("{:0>200}", account.balance);
        let state = elastin::encode_state(&account)?;
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?.insert(turns % ACTORS, &state[..])?;
        transaction.commit()?;
        turns += 1;
    }
    Ok(turns as f64 / began.elapsed().as_secs_f64())
}
