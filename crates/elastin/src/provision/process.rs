//! Provisions servers as processes of this program on this machine.
//!
//! The standard input of a server process is a pipe from its supervisor. The server stops when the pipe closes, so it
//! never outlives its supervisor, however that ends. The first line of the pipe is the cluster's secret, which other
//! users can't read there.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::time::Duration;

use elastin_stores::secret::Secret;
use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

/// The time that a server has to stop by itself before it is killed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(10);

/// The exit of a server process.
#[derive(Clone, Debug)]
pub(crate) struct Exited {
    /// The server's name.
    pub(crate) name: String,
    /// Whether it had been asked to stop.
    pub(crate) expected: bool,
    /// The exit status, for messages.
    pub(crate) how: String,
}

/// Starts and ends server processes.
pub(crate) struct ProcessProvisioner {
    program: PathBuf,
    arguments: Vec<OsString>,
    secret: Secret,
    metrics: Option<SocketAddr>,
    running: Arc<Mutex<HashMap<String, Running>>>,
    exits: mpsc::UnboundedSender<Exited>,
}

struct Running {
    process_id: u32,
    // Dropping it stops the process.
    stdin: Option<ChildStdin>,
    kill: watch::Sender<bool>,
}

impl ProcessProvisioner {
    /// Starts servers as `program arguments… --name NAME`, which get the secret and serve
    /// metrics at the ports after `metrics`; each exit is sent to `exits`.
    pub(crate) fn new(
        program: PathBuf,
        arguments: Vec<OsString>,
        secret: Secret,
        metrics: Option<SocketAddr>,
        exits: mpsc::UnboundedSender<Exited>,
    ) -> Self {
        Self {
            program,
            arguments,
            secret,
            metrics,
            running: Arc::default(),
            exits,
        }
    }

    /// Starts a server of this name, the `number`th one. Must be called inside a tokio runtime.
    pub(crate) fn start(&self, name: &str, number: u32) -> std::io::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg("--name").arg(name);
        if let Some(address) = self.metrics_of(number) {
            command.arg("--metrics").arg(address.to_string());
        }
        let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
        let pipe = child.stdin.take().expect("its standard input is a pipe");
        let mut stdin = ChildStdin::from(pipe.into_owned_fd()?);
        // The secret fits into the empty pipe, so this does not block.
        match writeln!(stdin, "{}", self.secret.text()) {
            // The process has exited already, which `watch_process` reports.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written?,
        }
        let kill = watch::Sender::new(false);
        let running = Running {
            process_id: child.id().expect("a process that was not waited for has an id"),
            stdin: Some(stdin),
            kill: kill.clone(),
        };
        self.running.lock().insert(name.into(), running);
        tokio::spawn(watch_process(
            name.into(),
            child,
            kill.subscribe(),
            Arc::clone(&self.running),
            self.exits.clone(),
        ));
        Ok(())
    }

    /// The metrics address of the `number`th server, if there is such a port.
    fn metrics_of(&self, number: u32) -> Option<SocketAddr> {
        let address = self.metrics?;
        let port = u32::from(address.port()).checked_add(number)?;
        Some(SocketAddr::new(address.ip(), u16::try_from(port).ok()?))
    }

    /// Asks a server to stop, and kills it if it does not in time.
    pub(crate) fn stop(&self, name: &str) {
        let Some(kill) = self.running.lock().get_mut(name).and_then(|server| {
            server.stdin.take()?;
            Some(server.kill.clone())
        }) else {
            return;
        };
        tokio::spawn(async move {
            tokio::time::sleep(LEAVE_TIME_MAX).await;
            kill.send_replace(true);
        });
    }

    /// Kills a server at once, as a crash would. Returns whether there was such a server.
    pub(crate) fn kill(&self, name: &str) -> bool {
        match self.running.lock().get(name) {
            Some(server) => {
                server.kill.send_replace(true);
                true
            }
            None => false,
        }
    }

    /// The operating system's id of a server's process.
    pub(crate) fn process_id(&self, name: &str) -> Option<u32> {
        self.running.lock().get(name).map(|server| server.process_id)
    }

    /// The number of running processes.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().len()
    }
}

async fn watch_process(
    name: String,
    mut child: Child,
    mut kill: watch::Receiver<bool>,
    running: Arc<Mutex<HashMap<String, Running>>>,
    exits: mpsc::UnboundedSender<Exited>,
) {
    let ended = tokio::select! {
        status = child.wait() => Some(status),
        _ = kill.wait_for(|kill| *kill) => None,
    };
    let status = match ended {
        Some(status) => status,
        None => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    let server = running.lock().remove(&name);
    let stopped = server.is_none_or(|server| server.stdin.is_none());
    let how = match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its exit status is unknown: {error}"),
    };
    // Fails only while the cluster shuts down.
    let _ = exits.send(Exited {
        name,
        expected: stopped,
        how,
    });
}
