//! The other process: this program, started as the server of a contestant.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The timeout for a server to print its address.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// A server process; it ends when this is dropped.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    _child: Child,
}

/// Starts this program as a server, which prints its address with [`print_ready`].
pub(crate) async fn start(name: &str) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", name]);
    start_command(command)
        .await
        .with_context(|| format!("the server of {name} did not start"))
}

pub(crate) async fn start_command(mut command: Command) -> Result<Process> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(output).lines();
    let announced = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix("listens on ") {
                return anyhow::Ok(address.parse()?);
            }
        }
        anyhow::bail!("it ended without printing its address")
    };
    let address = tokio::time::timeout(START_TIME_MAX, announced).await??;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(Process { address, _child: child })
}

/// Prints the address for the process that started this one.
pub(crate) fn print_ready(address: SocketAddr) {
    println!("listens on {address}");
    // The reader waits for it, so it must not stay in the buffer.
    let _ = std::io::stdout().flush();
}
