//! The other process: this very program, started as the server of a contestant.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long a server may take to say where it listens.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// A server process; it ends when this is dropped.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    _child: Child,
}

/// Starts this program as a server; it says where it listens with [`say_ready`].
pub(crate) async fn start(what: &str) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", what]);
    start_command(command)
        .await
        .with_context(|| format!("the server of {what} did not start"))
}

pub(crate) async fn start_command(mut command: Command) -> Result<Process> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(output).lines();
    let said = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix("listens on ") {
                return anyhow::Ok(address.parse()?);
            }
        }
        anyhow::bail!("it ended without saying where it listens")
    };
    let address = tokio::time::timeout(START_TIME_MAX, said).await??;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(Process { address, _child: child })
}

/// Tells whoever started this process where it listens.
pub(crate) fn say_ready(address: SocketAddr) {
    println!("listens on {address}");
    // Whoever reads it waits for it.
    let _ = std::io::stdout().flush();
}
