//! `elastin demo chaos`: moves actors and kills servers under load, and shows that nothing is lost.

mod account;
mod audit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use elastin::{Client, Elastin, Embedded};
use tokio::task::JoinSet;

use crate::output::print;
pub(crate) use account::Account;
use audit::{Audit, Deposits};

const SERVERS: u32 = 3;
const ACCOUNTS: u64 = 60;
const SENDERS: u32 = 8;
/// The deadline of a call: longer than the detection of a dead server.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// The time in which the accounts must become readable at the end.
const READ_TIME_MAX: Duration = Duration::from_secs(30);
/// The time between two moves.
const MOVE_EVERY: Duration = Duration::from_millis(10);

/// Options of the chaos demo.
#[derive(Args)]
pub(crate) struct Options {
    /// The duration, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// The number of servers to kill
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100))]
    kills: u32,
}

/// The application that the chaos demo runs.
pub(crate) fn app() -> elastin::App {
    Elastin::app().name("chaos").actor::<Account>()
}

/// Runs the demo. Fails if a deposit was lost, ran twice, or ran out of order.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(chaos(options))
}

async fn chaos(options: &Options) -> anyhow::Result<()> {
    let servers = app()
        .embedded()
        .servers(SERVERS)
        .node_arguments(["chaos-server", "node"]);
    let cluster = servers.start().await?;
    let client = cluster.client().await?;
    print(&format!(
        "{SERVERS} servers, {ACCOUNTS} accounts, {SENDERS} callers that deposit numbered coins\n"
    ));

    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for sender in 0..SENDERS {
        callers.spawn(deposit(cluster.client().await?, sender, Arc::clone(&stop)));
    }
    let (moved, killed) = disturb(&cluster, &client, options).await?;
    stop.store(true, Ordering::Relaxed);

    let mut audit = Audit::default();
    while let Some(deposits) = callers.join_next().await {
        audit.add(deposits?);
    }
    for account in 0..ACCOUNTS {
        audit.compare(account, &coins_of(&client, account).await?);
    }
    cluster.shutdown().await;
    print(&format!(
        "\n  actors moved              {moved:>8}\n  servers killed            {killed:>8}\n"
    ));
    print(&audit.table());
    audit.verdict()
}

/// Moves accounts between servers and kills servers. Returns the number of moves and of kills.
async fn disturb(cluster: &Embedded, client: &Client, options: &Options) -> anyhow::Result<(u64, u32)> {
    let length = Duration::from_secs(options.seconds);
    let began = Instant::now();
    let (mut moved, mut killed, mut turn) = (0, 0, 0_u64);
    while began.elapsed() < length {
        turn += 1;
        let servers: Vec<String> = cluster.servers().into_iter().map(|server| server.name).collect();
        // A walk over all accounts and servers with a long period.
        let account = client.actor::<Account>(turn * 7 % ACCOUNTS);
        if let Some(server) = servers.get((turn * 5 % 13) as usize % servers.len().max(1)) {
            // Fails if the account is there already, or inactive since its server died.
            moved += u64::from(cluster.move_actor(account.id(), server).await.is_ok());
        }
        let due = length * (killed + 1) / (options.kills + 1);
        if killed < options.kills
            && began.elapsed() >= due
            && let Some(server) = servers.first()
        {
            cluster.kill(server).await;
            killed += 1;
            print(&format!(
                "{:>5.1} s  {server} is killed\n",
                began.elapsed().as_secs_f64()
            ));
        }
        tokio::time::sleep(MOVE_EVERY).await;
    }
    Ok((moved, killed))
}

/// Deposits numbered coins in all accounts in turn, and records the outcome of each call.
async fn deposit(client: Client, sender: u32, stop: Arc<AtomicBool>) -> Deposits {
    let mut deposits = Deposits::new(sender);
    let mut coin = 0;
    while !stop.load(Ordering::Relaxed) {
        coin += 1;
        let account = (coin + u64::from(sender) * 11) % ACCOUNTS;
        let outcome = client
            .actor::<Account>(account)
            .deposit(sender, coin)
            .deadline(CALL_DEADLINE)
            .await;
        deposits.note(account, coin, &outcome);
    }
    deposits
}

async fn coins_of(client: &Client, account: u64) -> anyhow::Result<account::Coins> {
    let began = Instant::now();
    loop {
        match client.actor::<Account>(account).coins().deadline(CALL_DEADLINE).await {
            Ok(coins) => return Ok(coins),
            Err(error) if began.elapsed() > READ_TIME_MAX => anyhow::bail!("account {account} can't be read: {error}"),
            Err(_) => {}
        }
    }
}
