//! The subcommands that every application's program has.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use elastin_clock::Clock;
use elastin_cluster::Planted;

use crate::address::ClusterAddress;
use crate::member::{LEASE, LOOPBACK, ttl_of};
use crate::server::{self, NodeOptions};
use crate::{App, PolicySource};

#[derive(Parser)]
#[command(about = "An Elastin application", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an embedded cluster on this machine until it is interrupted
    Cluster {
        /// The number of servers at the start, and the fewest
        #[arg(long, default_value_t = 1)]
        servers: u32,
        /// The largest number of servers
        #[arg(long, default_value_t = 8)]
        servers_max: u32,
        /// The share of one core that each server may use
        #[arg(long)]
        cpu_share: Option<f64>,
        /// The elasticity period in seconds, unless the policy sets one
        #[arg(long, default_value_t = 10.0)]
        period: f64,
        /// The directory of the cluster's files; without it they are temporary
        #[arg(long)]
        data: Option<PathBuf>,
        /// The address to serve metrics at, on the loopback interface; server-N uses the Nth port after it
        #[arg(long)]
        metrics: Option<SocketAddr>,
    },
    /// Run a server, of a cluster coordinated by etcd or of an embedded one, whose supervisor starts it
    Node(Box<NodeArguments>),
    /// Check a policy against the application's actors; without a file, the policy that comes with it
    Check {
        /// The policy
        policy: Option<PathBuf>,
    },
    /// Print the application's actor types, their functions and properties, as JSON
    Schema,
}

/// The arguments of a server.
#[derive(Args)]
struct NodeArguments {
    #[command(flatten)]
    address: ClusterAddress,
    /// The server's name, unique in its cluster
    #[arg(long)]
    name: String,
    /// The share of one core that it may use
    #[arg(long)]
    cpu_share: Option<f64>,
    /// Park connection readers at once instead of busy-polling: uses less CPU time, but calls take longer
    #[arg(long)]
    no_busy_poll: bool,
    /// The address to accept connections on
    #[arg(long, default_value_t = LOOPBACK)]
    listen: SocketAddr,
    /// The address that other members dial, if it differs from --listen
    #[arg(long)]
    advertise: Option<SocketAddr>,
    /// The seconds without a renewal after which others take over; half of it should be whole seconds, the unit of
    /// etcd's leases
    #[arg(long, default_value_t = LEASE.as_secs_f64())]
    lease: f64,
    /// The elasticity period in seconds, unless the policy sets one; the first server of a cluster sets it
    #[arg(long, default_value_t = 10.0)]
    period: f64,
    /// The capacity of the network, in megabits per second; without it, percentages of the network are unknown
    #[arg(long)]
    net_mbit: Option<f64>,
    /// The address to serve metrics at, on the loopback interface
    #[arg(long)]
    metrics: Option<SocketAddr>,
    /// Keep serving after the lease may have expired
    #[cfg(feature = "planted-bugs")]
    #[arg(long, hide = true)]
    no_lease_fence: bool,
    /// Overwrite the state that a later activation has saved
    #[cfg(feature = "planted-bugs")]
    #[arg(long, hide = true)]
    no_store_fence: bool,
    /// Speak wire versions up to this one, as a later build would
    #[cfg(feature = "planted-bugs")]
    #[arg(long, hide = true)]
    wire_newest: Option<u16>,
}

impl NodeArguments {
    fn options(self) -> anyhow::Result<(ClusterAddress, NodeOptions)> {
        let options = NodeOptions {
            lease_ttl: ttl_of(seconds("lease", self.lease)?),
            period: seconds("period", self.period)?,
            net_mbit: positive("the network capacity", self.net_mbit)?,
            metrics: self.metrics,
            clock: Clock::start(),
            name: self.name,
            cpu_share: positive(CPU_SHARE, self.cpu_share)?,
            busy_poll: !self.no_busy_poll,
            listen: self.listen,
            advertise: self.advertise,
            #[cfg(feature = "planted-bugs")]
            planted: Planted {
                no_lease_fence: self.no_lease_fence,
                no_store_fence: self.no_store_fence,
                wire_newest: self.wire_newest,
            },
            #[cfg(not(feature = "planted-bugs"))]
            planted: Planted::default(),
        };
        Ok((self.address, options))
    }
}

/// Logs to standard error as the environment variable `RUST_LOG` selects; nothing if it is not set.
pub fn log_to_stderr() {
    log_to_stderr_or(None);
}

/// Like [`log_to_stderr`], with a filter that applies if the variable is not set.
fn log_to_stderr_or(default_filter: Option<&str>) {
    let filter = match default_filter {
        _ if std::env::var_os("RUST_LOG").is_some() => tracing_subscriber::EnvFilter::from_default_env(),
        Some(filter) => tracing_subscriber::EnvFilter::new(filter),
        None => return,
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// The default log filter of a server without a supervisor, whose log an operator reads.
const SERVER_LOG_FILTER: &str = "warn,elastin=info";

/// Runs the program with the arguments of the process.
pub(crate) fn main(app: App) -> ExitCode {
    execute(app, Arguments::parse())
}

/// Runs the program with these arguments, which don't include the program's name.
pub(crate) fn run(app: App, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once(OsString::from(app.cluster_name())).chain(arguments);
    execute(app, Arguments::parse_from(arguments))
}

fn execute(app: App, arguments: Arguments) -> ExitCode {
    match &arguments.command {
        Command::Node(arguments) if !arguments.address.is_supervised() => log_to_stderr_or(Some(SERVER_LOG_FILTER)),
        _ => log_to_stderr(),
    }
    let done = match arguments.command {
        Command::Cluster {
            servers,
            servers_max,
            cpu_share,
            period,
            data,
            metrics,
        } => cluster(app, servers, servers_max, cpu_share, period, data, metrics),
        Command::Node(arguments) => arguments
            .options()
            .and_then(|(address, options)| block_on(server::run(app, address, options))),
        Command::Check { policy } => check(app, policy),
        Command::Schema => schema(&app),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .enable_all()
        .build()?
        .block_on(work)
}

/// Converts an argument in seconds, which must be positive.
fn seconds(name: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| anyhow::anyhow!("the {name} must be longer than 0 seconds"))
}

/// The name of the CPU share in errors.
const CPU_SHARE: &str = "the CPU share";

/// Checks that an optional argument is positive and finite.
fn positive(name: &str, amount: Option<f64>) -> anyhow::Result<Option<f64>> {
    let is_valid = amount.is_none_or(|amount| amount > 0.0 && amount.is_finite());
    anyhow::ensure!(is_valid, "{name} must be a number greater than 0");
    Ok(amount)
}

/// Threads for connections and timers. A turn may run inline on the thread that received its message, so a second
/// thread keeps connections alive while such a turn takes long.
const IO_THREADS: usize = 2;

fn cluster(
    app: App,
    servers: u32,
    servers_max: u32,
    cpu_share: Option<f64>,
    period: f64,
    data: Option<PathBuf>,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let period = seconds("period", period)?;
    anyhow::ensure!(servers > 0, "a cluster needs at least one server");
    let mut builder = app.embedded().servers(servers).servers_max(servers_max).period(period);
    if let Some(share) = positive(CPU_SHARE, cpu_share)? {
        builder = builder.cpu_share(share);
    }
    if let Some(data) = data {
        builder = builder.data(data);
    }
    if let Some(metrics) = metrics {
        builder = builder.metrics(metrics);
    }
    block_on(async {
        let cluster = builder.start().await?;
        for server in cluster.servers() {
            eprintln!("{} is up", server.name);
        }
        eprintln!("the cluster runs at {}; press Ctrl-C to stop it", cluster.address());
        tokio::signal::ctrl_c().await?;
        cluster.shutdown().await;
        Ok(())
    })
}

fn check(app: App, policy: Option<PathBuf>) -> anyhow::Result<()> {
    let app = match policy {
        None => app,
        Some(file) => {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| anyhow::anyhow!("{} can't be read: {error}", file.display()))?;
            app.policy(PolicySource::new(file.display().to_string(), text))
        }
    };
    eprint!("{}", app.check()?);
    eprintln!("{} is fine", app.policy_source().file_name);
    Ok(())
}

fn schema(app: &App) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(app.schema())?;
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for this argument of a server; empty if it is valid.
    fn error_of(argument: &str, value: &str) -> String {
        let arguments = ["app", "node", "--name", "server-1", &format!("{argument}={value}")];
        let Command::Node(arguments) = Arguments::try_parse_from(arguments).expect("it is a number").command else {
            panic!("the command is `node`");
        };
        let error = arguments.options().err();
        error.map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn arguments_that_are_not_positive_are_refused() {
        for invalid in ["0", "-1", "NaN", "inf"] {
            assert_eq!(
                error_of("--cpu-share", invalid),
                "the CPU share must be a number greater than 0"
            );
            assert_eq!(
                error_of("--net-mbit", invalid),
                "the network capacity must be a number greater than 0"
            );
            assert_eq!(error_of("--lease", invalid), "the lease must be longer than 0 seconds");
            assert_eq!(
                error_of("--period", invalid),
                "the period must be longer than 0 seconds"
            );
        }
        for argument in ["--cpu-share", "--net-mbit", "--lease", "--period"] {
            assert_eq!(error_of(argument, "0.5"), "", "{argument} is valid");
        }
    }
}
