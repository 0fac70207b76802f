//! A server process that can be paused, signalled and killed.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest start of a server, on a machine that is busy with other tests.
pub(crate) const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The interval of polls for the state of a process.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The reason why a server could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The program is not installed.
    #[error("`{program}` is not installed: it comes with Debian's package `{package}`")]
    NotInstalled {
        /// The missing program.
        program: String,
        /// The package that has it.
        package: &'static str,
    },
    /// An operation of the operating system failed.
    #[error("the operating system refused an operation: {0}")]
    Io(#[from] std::io::Error),
    /// A program ended with an error, or did not start in time.
    #[error("{reason}\n{log}")]
    Failed {
        /// The step that failed.
        reason: String,
        /// The program's output.
        log: String,
    },
}

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program with its output in a new file.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process, BackendError> {
        let file = std::fs::File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Process { child })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Pauses it until [`Process::resume`].
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.id().to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "signal {name} was not sent");
    }

    /// Waits until it has ended by itself; returns whether it did in time.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Waits until the process accepts connections at an address.
    pub(crate) fn await_port(&mut self, address: SocketAddr, log: &Path) -> Result<(), BackendError> {
        let reason = format!("the process does not listen at {address}");
        self.await_condition(reason, log, || TcpStream::connect(address).is_ok())
    }

    /// Waits until its output contains a text.
    pub(crate) fn await_output(&mut self, text: &str, log: &Path) -> Result<(), BackendError> {
        let is_logged = || std::fs::read_to_string(log).is_ok_and(|log| log.contains(text));
        self.await_condition(format!("the process has not logged \"{text}\""), log, is_logged)
    }

    fn await_condition(&mut self, reason: String, log: &Path, holds: impl Fn() -> bool) -> Result<(), BackendError> {
        let until = Instant::now() + START_TIME_MAX;
        while !holds() {
            if self.has_ended() || Instant::now() > until {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                return Err(BackendError::Failed { reason, log });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Result<(), BackendError> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(BackendError::Failed {
        reason: format!("{command:?} ended with {}", output.status),
        log: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
