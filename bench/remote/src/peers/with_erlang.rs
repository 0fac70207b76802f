//! Erlang/OTP, where it is installed: two nodes, one of which runs the load itself.

use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::contestant::{Contestant, Measured};
use crate::load::{TIME, Work};
use crate::process::{self, Process};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/erlang/echo.escript");

pub(crate) struct Erlang {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _client: Child,
    _server: Process,
}

/// The contestant, or `None` where Erlang is not installed.
pub(crate) async fn connect() -> Result<Option<Erlang>> {
    // The daemon through which nodes find each other; it keeps running, as after any Erlang program.
    let daemon = Command::new("epmd").arg("-daemon").status().await;
    if !daemon.is_ok_and(|ended| ended.success()) {
        return Ok(None);
    }
    let name = |role: &str| format!("bench_{role}_{}", std::process::id());
    let mut serve = Command::new("escript");
    serve.args([SCRIPT, "serve", &name("server")]);
    let server = process::start_command(serve)
        .await
        .context("Erlang's server did not start")?;
    let mut client = Command::new("escript")
        .args([SCRIPT, "call", &name("client"), &name("server")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    Ok(Some(Erlang {
        input: client.stdin.take().context("its input is piped")?,
        output: BufReader::new(client.stdout.take().context("its output is piped")?).lines(),
        _client: client,
        _server: server,
    }))
}

impl Contestant for Erlang {
    fn name(&self) -> &str {
        "Erlang/OTP"
    }

    fn measure(&mut self, work: Work) -> Measured<'_> {
        Box::pin(async move {
            let order = match work {
                Work::OneAfterAnother(calls) => format!("one {calls}\n"),
                Work::InFlight(callers) => format!("many {callers} {}\n", TIME.as_millis()),
            };
            self.input.write_all(order.as_bytes()).await?;
            while let Some(line) = self.output.next_line().await? {
                if let Some(answer) = line.strip_prefix("answer ") {
                    return Ok(answer.parse()?);
                }
            }
            anyhow::bail!("Erlang's client has ended")
        })
    }
}
