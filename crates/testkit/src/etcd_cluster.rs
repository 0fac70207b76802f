//! A cluster of server processes that is coordinated by a real etcd cluster and keeps its state in a real PostgreSQL
//! server.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastin::{App, Authority, Cluster, ClusterAddress};
use elastin_test_servers::{Certificates, EtcdCluster, Network, PostgresServer, Process, with_wrong_clock};
use tempfile::TempDir;

/// The time without a renewal after which others take over from a server of [`EtcdElastin`], in seconds: twice etcd's
/// shortest lease.
pub const LEASE_SECONDS: u32 = 4;
/// The time in which a server must drain and end.
const END_TIME_MAX: Duration = Duration::from_secs(90);

/// The number of log lines of each server that a failing test prints.
const LAST_LINES: usize = 30;

/// A cluster of server processes over etcd and PostgreSQL. All processes end when this is dropped.
///
/// ```no_run
/// use elastin_testkit::{EtcdElastin, Ledger, app, wait_for};
///
/// # #[tokio::main]
/// # async fn main() -> anyhow::Result<()> {
/// // In an application's tests: its own `App`, and `env!("CARGO_BIN_EXE_…")` of its own program.
/// let mut elastin = EtcdElastin::start(app(), "target/debug/testkit-server", 3)?;
/// elastin.add_server("a")?;
/// elastin.add_server("b")?;
/// let cluster = elastin.connect().await?;
/// wait_for("the servers", || cluster.server_names().len() == 2).await;
/// let ledger = cluster.client().actor::<Ledger>(7);
/// assert_eq!(ledger.append(1, 1).await, Ok(1));
/// elastin.server("b").pause();
/// elastin.kill_server("a");
/// elastin.etcd.kill(0);
/// elastin.postgres.restart()?;
/// elastin.server("b").resume();
/// # Ok(())
/// # }
/// ```
pub struct EtcdElastin {
    app: App,
    program: PathBuf,
    // Before the stores, so that the servers are dropped first.
    servers: BTreeMap<String, Process>,
    clients_made: AtomicU64,
    // The logs of servers, and the certificates of all members.
    files: TempDir,
    authority: Authority,
    /// The log filter of servers.
    log_filter: String,
    /// The coordination store.
    pub etcd: EtcdCluster,
    /// The state store.
    pub postgres: PostgresServer,
}

impl EtcdElastin {
    /// Starts an etcd cluster of `etcd_members` members and a PostgreSQL server, without any Elastin server yet.
    /// `program` must call [`App::main`] with this application.
    pub fn start(app: App, program: impl Into<PathBuf>, etcd_members: usize) -> anyhow::Result<EtcdElastin> {
        Self::start_at(Ipv4Addr::LOCALHOST, app, program, etcd_members)
    }

    /// Like [`EtcdElastin::start`], with etcd and PostgreSQL at an address of this machine.
    pub fn start_at(
        address: Ipv4Addr,
        app: App,
        program: impl Into<PathBuf>,
        etcd_members: usize,
    ) -> anyhow::Result<EtcdElastin> {
        let postgres = PostgresServer::start_at(address)?;
        Self::start_over(EtcdCluster::start_at(address, etcd_members)?, postgres, app, program)
    }

    /// Like [`EtcdElastin::start`], over a running etcd cluster and PostgreSQL server.
    pub fn start_over(
        etcd: EtcdCluster,
        postgres: PostgresServer,
        app: App,
        program: impl Into<PathBuf>,
    ) -> anyhow::Result<EtcdElastin> {
        Ok(EtcdElastin {
            program: program.into(),
            servers: BTreeMap::new(),
            clients_made: AtomicU64::new(0),
            files: tempfile::tempdir()?,
            authority: Authority::create(app.cluster_name())?,
            log_filter: "warn".to_owned(),
            etcd,
            postgres,
            app,
        })
    }

    /// Sets the log filter, as in `RUST_LOG`, of servers that are started from now on:
    /// [`EtcdElastin::output_of`] has it.
    pub fn log(&mut self, filter: &str) {
        self.log_filter = filter.to_owned();
    }

    /// Starts a server of this name. It has joined when [`Cluster::server_names`] knows it.
    pub fn add_server(&mut self, name: &str) -> anyhow::Result<()> {
        self.add_server_with(name, &[])
    }

    /// Like [`EtcdElastin::add_server`], with more arguments.
    pub fn add_server_with(&mut self, name: &str, more: &[&str]) -> anyhow::Result<()> {
        let command = Command::new(&self.program);
        self.launch(name, command, more)
    }

    /// Starts a server of this name whose wall clock is shifted by this, such as `+1h`.
    pub fn add_server_with_clock(&mut self, name: &str, by: &str) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        with_wrong_clock(&mut command, by)?;
        self.launch(name, command, &[])
    }

    /// Starts a server of this name on a host of a network.
    pub fn add_server_on(&mut self, network: &Network, host: &str, address: Ipv4Addr) -> anyhow::Result<()> {
        let command = network.command(host, &self.program);
        self.launch(host, command, &["--listen", &format!("{address}:0")])
    }

    /// Starts a server of this name with other certificates than this cluster's, in a directory.
    pub fn add_untrusted_server(&mut self, name: &str, certificates: &Path) -> anyhow::Result<()> {
        self.launch_with(name, Command::new(&self.program), &[], certificates)
    }

    fn launch(&mut self, name: &str, command: Command, more: &[&str]) -> anyhow::Result<()> {
        let certificates = self.certificates(name, true)?;
        self.launch_with(name, command, more, &certificates)
    }

    fn launch_with(
        &mut self,
        name: &str,
        mut command: Command,
        more: &[&str],
        certificates: &Path,
    ) -> anyhow::Result<()> {
        command
            .env("RUST_LOG", &self.log_filter)
            .arg("node")
            .args(["--name", name])
            .args(["--etcd", &self.etcd.endpoints().join(",")])
            .args(["--postgres", &self.postgres.url()])
            .args(["--lease", &LEASE_SECONDS.to_string()])
            .args(["--period", "1"])
            .args(more)
            .arg("--certificates")
            .arg(certificates);
        for (store, certificates) in [
            ("etcd", self.etcd.certificates()),
            ("postgres", self.postgres.certificates()),
        ] {
            if let Some(certificates) = certificates {
                command
                    .arg(format!("--{store}-ca"))
                    .arg(certificates.authority())
                    .arg(format!("--{store}-certificate"))
                    .arg(certificates.client())
                    .arg(format!("--{store}-key"))
                    .arg(certificates.client_key());
            }
        }
        let process = Process::start(&mut command, &self.log_file(name))?;
        self.servers.insert(name.to_owned(), process);
        Ok(())
    }

    /// Starts a client process of this name, for programs that have this command:
    /// `call NAME ETCD CERTIFICATES`. [`EtcdElastin::output_of`] has its output.
    pub fn start_client(&self, name: &str) -> anyhow::Result<Process> {
        let mut command = Command::new(&self.program);
        command
            .env("RUST_LOG", &self.log_filter)
            .args(["call", name, &self.etcd.endpoints().join(",")])
            .arg(self.certificates(name, false)?);
        Ok(Process::start(&mut command, &self.log_file(name))?)
    }

    /// A server's process.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn server(&self, name: &str) -> &Process {
        &self.servers[name]
    }

    /// Whether a server's process has ended by itself.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn has_ended(&mut self, name: &str) -> bool {
        let server = self.servers.get_mut(name).expect("the server was started");
        server.has_ended()
    }

    /// The names of the servers that were started and neither killed nor ended.
    pub fn names(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    /// Kills a server, as a crash would.
    pub fn kill_server(&mut self, name: &str) {
        self.servers.remove(name);
    }

    /// Ends a server with SIGTERM, and waits until it has drained and left.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn end_server(&mut self, name: &str) {
        let mut process = self.servers.remove(name).expect("the server was started");
        process.signal("TERM");
        assert!(
            process.wait(END_TIME_MAX),
            "{name} does not end: {}",
            self.output_of(name)
        );
    }

    /// The output of a server so far.
    pub fn output_of(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_file(name)).unwrap_or_default()
    }

    /// The cluster's address for a client of this name, with a certificate of its own.
    pub fn address(&self, client: &str) -> anyhow::Result<ClusterAddress> {
        let tls = self.etcd.certificates();
        Ok(ClusterAddress {
            etcd: self.etcd.endpoints(),
            etcd_ca: tls.map(Certificates::authority),
            etcd_certificate: tls.map(Certificates::client),
            etcd_key: tls.map(Certificates::client_key),
            certificates: Some(self.certificates(client, false)?),
            ..ClusterAddress::default()
        })
    }

    fn certificates(&self, name: &str, node: bool) -> anyhow::Result<PathBuf> {
        let directory = self.files.path().join(format!("{name}.certificates"));
        self.authority.issue(name, node, &directory)?;
        Ok(directory)
    }

    /// A connection to the cluster, as a client of its own.
    pub async fn connect(&self) -> anyhow::Result<Cluster> {
        let number = self.clients_made.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("client-{number}");
        Cluster::connect(&self.app, &self.address(&name)?, &name).await
    }

    fn log_file(&self, name: &str) -> PathBuf {
        let directory: &Path = self.files.path();
        directory.join(format!("{name}.log"))
    }
}

/// Prints the last lines of each server when a test fails.
impl Drop for EtcdElastin {
    #[expect(clippy::print_stderr, reason = "it is part of how a test fails")]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let files = std::fs::read_dir(self.files.path()).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = files.map(|file| file.path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        for log in logs {
            let output = std::fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = output.lines().collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            eprintln!("--- {}\n{}", log.display(), last.join("\n"));
        }
    }
}
