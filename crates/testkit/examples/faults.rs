//! Breaks a cluster over etcd and PostgreSQL for a given time, in ways that a seed chooses, while ledgers are
//! appended to and read; then compares the ledgers with the recorded outcomes. Separate from the tests, because
//! the longer it runs the more it finds:
//!
//! `cargo run --release -p elastin-testkit --example faults -- --minutes 60`

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use elastin::Cluster;
use elastin_testkit::{EtcdElastin, Load, SeededRng, app, await_service, violations};

/// The number of faults after which a cluster's contents are checked and a new cluster is started. Callers remember all
/// that they have read, so it is not for ever.
const FAULTS_PER_ROUND: usize = 8;
const ETCD_MEMBERS: usize = 3;
const SERVERS: usize = 3;
/// Longer than a lease and the takeover delay after it.
const PAUSE_MS_MAX: usize = 8_000;
/// The time in which all servers must have joined after a fault.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "node") {
        return app().main();
    }
    match parse(&arguments).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Command-line options.
struct Request {
    time: Duration,
    seed: u64,
}

fn parse(arguments: &[String]) -> Result<Request> {
    let mut request = Request {
        time: Duration::from_secs(60),
        seed: u64::from(std::process::id()),
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            bail!("usage: faults [--minutes MINUTES] [--seed SEED]");
        };
        match name.as_str() {
            "--minutes" => {
                let minutes: f64 = value.parse().context("the minutes are a number")?;
                request.time = Duration::try_from_secs_f64(minutes * 60.0).context("the minutes can't be negative")?;
            }
            "--seed" => request.seed = value.parse().context("the seed is a whole number")?,
            other => bail!("unknown argument `{other}`; there are --minutes and --seed"),
        }
    }
    Ok(request)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn run(Request { time, seed }: Request) -> Result<()> {
    let began = Instant::now();
    let mut rounds = 0;
    while rounds == 0 || began.elapsed() < time {
        let seed = seed + rounds;
        rounds += 1;
        round(seed).await.with_context(|| format!("with --seed {seed}"))?;
    }
    eprintln!("{rounds} rounds of {FAULTS_PER_ROUND} faults: nothing lost, doubled or reordered");
    Ok(())
}

/// One cluster, from its start to the comparison.
async fn round(seed: u64) -> Result<()> {
    eprintln!("round with seed {seed}");
    let program = std::env::current_exe()?;
    let mut broken = Broken {
        elastin: EtcdElastin::start(app(), program, ETCD_MEMBERS)?,
        servers_made: 0,
        rng: SeededRng::new(seed),
    };
    for _ in 0..SERVERS {
        broken.add_server()?;
    }
    let cluster = broken.elastin.connect().await?;
    broken.await_servers(&cluster).await?;
    let load = Load::start(cluster.client());
    for _ in 0..FAULTS_PER_ROUND {
        broken.run_load(3_000).await;
        let fault = broken.fault().await?;
        eprintln!("  {fault}");
        await_service(cluster.client()).await;
        broken.await_servers(&cluster).await?;
    }
    let history = load.end().await;
    let found = violations(&history, cluster.client()).await;
    eprintln!("  {:?}", history.counts());
    cluster.leave().await;
    ensure!(found.is_empty(), "violations:\n{}", found.join("\n"));
    Ok(())
}

/// A cluster under fault injection.
struct Broken {
    elastin: EtcdElastin,
    servers_made: usize,
    rng: SeededRng,
}

impl Broken {
    fn add_server(&mut self) -> Result<()> {
        self.servers_made += 1;
        self.elastin.add_server(&format!("s{}", self.servers_made))
    }

    /// Waits until all servers have joined. Servers that lost their lease have ended, and are replaced.
    async fn await_servers(&mut self, cluster: &Cluster) -> Result<()> {
        let began = Instant::now();
        loop {
            for name in self.elastin.names() {
                if self.elastin.has_ended(&name) {
                    self.elastin.kill_server(&name);
                    self.add_server()?;
                }
            }
            let (mut there, mut expected) = (cluster.server_names(), self.elastin.names());
            there.sort();
            expected.sort();
            if there == expected {
                return Ok(());
            }
            ensure!(
                began.elapsed() < RECOVERY_TIME_MAX,
                "the servers are {there:?}, not {expected:?}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Lets the load run for a while.
    async fn run_load(&mut self, ms_max: usize) {
        let time = Duration::from_millis(self.rng.below(ms_max) as u64);
        tokio::time::sleep(time).await;
    }

    fn any_server(&mut self) -> String {
        let names = self.elastin.names();
        names[self.rng.below(names.len())].clone()
    }

    /// Injects a fault and ends it; returns its description.
    async fn fault(&mut self) -> Result<String> {
        let server = self.any_server();
        let member = self.rng.below(ETCD_MEMBERS);
        Ok(match self.rng.below(6) {
            0 => {
                self.elastin.kill_server(&server);
                self.add_server()?;
                format!("{server} was killed")
            }
            1 => {
                tokio::task::block_in_place(|| self.elastin.end_server(&server));
                self.add_server()?;
                format!("{server} was drained and ended")
            }
            2 => {
                self.elastin.server(&server).pause();
                self.run_load(PAUSE_MS_MAX).await;
                self.elastin.server(&server).resume();
                format!("{server} was paused for a while")
            }
            3 => {
                self.elastin.etcd.kill(member);
                self.run_load(PAUSE_MS_MAX).await;
                tokio::task::block_in_place(|| self.elastin.etcd.restart(member))?;
                format!("member {member} of etcd was killed and restarted")
            }
            4 => {
                let other = (member + 1) % ETCD_MEMBERS;
                self.elastin.etcd.kill(member);
                self.elastin.etcd.kill(other);
                self.run_load(PAUSE_MS_MAX).await;
                for member in [member, other] {
                    tokio::task::block_in_place(|| self.elastin.etcd.restart(member))?;
                }
                "etcd lost its quorum for a while".to_owned()
            }
            _ => {
                tokio::task::block_in_place(|| self.elastin.postgres.restart())?;
                "PostgreSQL was restarted".to_owned()
            }
        })
    }
}
