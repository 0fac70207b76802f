//! A PostgreSQL server.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::disk::Disk;
use crate::port::free_port;
use crate::process::{BackendError, POLL_INTERVAL, Process, START_TIME_MAX, run};

/// The most attempts to start: another process may take a port that was free.
const STARTS_MAX: u32 = 5;
/// The directory of the server's programs on Debian, with a subdirectory for each version.
const DEBIAN_PROGRAMS: &str = "/usr/lib/postgresql";
/// The server's error while processes of an earlier one have not ended yet.
const STILL_IN_USE: &str = "pre-existing shared memory block";
/// The account of the server if the tests run as root: the server refuses to run as root.
const ACCOUNT: &str = "postgres";

/// A PostgreSQL server on this machine, with an empty database.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    address: Ipv4Addr,
    port: u16,
    process: Option<Process>,
    directory: TempDir,
    certificates: Option<Certificates>,
}

impl PostgresServer {
    /// Starts a server, and waits until it accepts connections.
    pub fn start() -> Result<PostgresServer, BackendError> {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// Like [`PostgresServer::start`], at an address of this machine.
    pub fn start_at(address: Ipv4Addr) -> Result<PostgresServer, BackendError> {
        Self::start_in(address, tempfile::tempdir()?, None)
    }

    /// Starts a server that requires TLS with client certificates.
    pub fn start_secured() -> Result<PostgresServer, BackendError> {
        let address = Ipv4Addr::LOCALHOST;
        let certificates = Certificates::make(address)?;
        Self::start_in(address, tempfile::tempdir()?, Some(certificates))
    }

    /// Like [`PostgresServer::start`], with its files on this disk.
    pub fn start_on(disk: &Disk) -> Result<PostgresServer, BackendError> {
        Self::start_in(Ipv4Addr::LOCALHOST, tempfile::tempdir_in(disk.path())?, None)
    }

    fn start_in(
        address: Ipv4Addr,
        directory: TempDir,
        certificates: Option<Certificates>,
    ) -> Result<PostgresServer, BackendError> {
        let mut server = PostgresServer {
            programs: programs()?,
            address,
            port: free_port(),
            process: None,
            directory,
            certificates,
        };
        server.create()?;
        let mut tried = 0;
        loop {
            tried += 1;
            match server.restart() {
                Err(BackendError::Failed { .. }) if tried < STARTS_MAX => server.port = free_port(),
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Creates the server's files, owned by the account that runs it.
    fn create(&self) -> Result<(), BackendError> {
        if is_root() {
            run(Command::new("chown").arg(ACCOUNT).arg(self.directory.path()))?;
        }
        run(self
            .program("initdb")
            .args([
                "--username",
                ACCOUNT,
                "--auth",
                "trust",
                "--encoding",
                "UTF8",
                "--no-sync",
                "--pgdata",
            ])
            .arg(self.data()))?;
        if !self.address.is_loopback() {
            let rules = std::fs::OpenOptions::new()
                .append(true)
                .open(self.data().join("pg_hba.conf"));
            writeln!(rules?, "host all all samenet trust")?;
        }
        match &self.certificates {
            Some(certificates) => self.secure(certificates),
            None => Ok(()),
        }
    }

    /// Installs the server's certificate in files that it owns, as it requires, and the rule that clients need a
    /// certificate.
    fn secure(&self, certificates: &Certificates) -> Result<(), BackendError> {
        let data = self.data();
        for (from, to) in [
            (certificates.server(), "server.crt"),
            (certificates.server_key(), "server.key"),
            (certificates.authority(), "root.crt"),
        ] {
            let mut install = Command::new("install");
            install.args(["--mode", "600"]);
            if is_root() {
                install.args(["--owner", ACCOUNT]);
            }
            run(install.arg(from).arg(data.join(to)))?;
        }
        std::fs::write(
            data.join("pg_hba.conf"),
            "hostssl all all all trust clientcert=verify-ca\n",
        )?;
        Ok(())
    }

    /// Kills the server if it runs, as a crash would, and restarts it from its disk.
    pub fn restart(&mut self) -> Result<(), BackendError> {
        self.kill();
        let until = Instant::now() + START_TIME_MAX;
        loop {
            match self.launch() {
                // Other processes of the killed server have not ended yet.
                Err(BackendError::Failed { log, .. }) if log.contains(STILL_IN_USE) && Instant::now() < until => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                launched => return launched,
            }
        }
    }

    /// Starts the server from its disk.
    fn launch(&mut self) -> Result<(), BackendError> {
        let log = self.directory.path().join("log");
        let mut command = self.program("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .args(["-h", &self.address.to_string(), "-p", &self.port.to_string(), "-k"])
            .arg(self.data())
            // The defaults would reserve memory that no test needs.
            .args(["-c", "shared_buffers=16MB", "-c", "max_connections=40"]);
        if self.certificates.is_some() {
            command.args(["-c", "ssl=on", "-c", "ssl_ca_file=root.crt"]);
        }
        let mut process = Process::start(&mut command, &log)?;
        process.await_output("ready to accept connections", &log)?;
        self.process = Some(process);
        Ok(())
    }

    /// Shuts the server down without waiting for its clients.
    pub fn stop(&mut self) -> Result<(), BackendError> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.signal("INT");
        if process.wait(START_TIME_MAX) {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.directory.path().join("log"))?;
        let reason = "the server did not end".to_owned();
        Err(BackendError::Failed { reason, log })
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        if self.process.take().is_some() {
            // The other processes of the server end by themselves, but leave this file behind.
            let _ = std::fs::remove_file(self.data().join("postmaster.pid"));
        }
    }

    /// The server's first process.
    ///
    /// # Panics
    /// If it was killed.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.port))
    }

    /// The certificates, if it speaks TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Its connection URL.
    pub fn url(&self) -> String {
        self.url_through(self.address())
    }

    /// Its connection URL through a proxy.
    pub fn url_through(&self, proxy: SocketAddr) -> String {
        format!("postgres://{ACCOUNT}@{proxy}/postgres")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// One of the server's programs, under an account that may run it.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", ACCOUNT, "--regid", ACCOUNT, "--init-groups", "--"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.directory.path());
        command
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The directory of the server's programs, of the latest version if there are several.
fn programs() -> Result<PathBuf, BackendError> {
    let debian = std::fs::read_dir(DEBIAN_PROGRAMS).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = found.into_iter().rev().chain(std::env::split_paths(&path));
    let has_both = |directory: &Path| ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file());
    candidates
        .into_iter()
        .find(|directory| has_both(directory))
        .ok_or_else(|| BackendError::NotInstalled {
            program: "postgres".to_owned(),
            package: "postgresql",
        })
}
