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
        /// How many servers to start with
        #[arg(long, default_value_t = 1)]
        servers: u32,
        /// How many servers there may be
        #[arg(long, default_value_t = 8)]
        servers_max: u32,
        /// The share of one core that each server may use
        #[arg(long)]
        cpu_share: Option<f64>,
        /// The elasticity period in seconds, unless the policy names one
        #[arg(long, default_value_t = 10.0)]
        period: f64,
        /// The directory of the cluster's files; without it they are temporary
        #[arg(long)]
        data: Option<PathBuf>,
        /// Where to serve metrics, on the loopback interface; server-N does at the Nth port after
        #[arg(long)]
        metrics: Option<SocketAddr>,
    },
    /// Run a server: of an embedded cluster, whose supervisor starts it, or of one coordinated by etcd
    Node(Box<NodeArguments>),
    /// Check a policy against the application's actors; without a file, the policy that comes with it
    Check {
        /// The policy
        policy: Option<PathBuf>,
    },
    /// Print the application's actor types, their functions and properties, as JSON
    Schema,
}

/// What a server is started with.
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
    /// Sleep at once when no mail is there, instead of looking for more for 100 µs: uses less of the processor, and calls are slower
    #[arg(long)]
    no_busy_poll: bool,
    /// Where it accepts connections
    #[arg(long, default_value_t = LOOPBACK)]
    listen: SocketAddr,
    /// Where others reach it, if that is not where it listens
    #[arg(long)]
    advertise: Option<SocketAddr>,
    /// How many seconds it may be silent before others take over from it; half of that should be whole seconds, which etcd counts in
    #[arg(long, default_value_t = LEASE.as_secs_f64())]
    lease: f64,
    /// The elasticity period in seconds, unless the policy names one; the first server of a cluster sets it
    #[arg(long, default_value_t = 10.0)]
    period: f64,
    /// What the network can carry, in megabits per second; without it, percentages of the network are unknown
    #[arg(long)]
    net_mbit: Option<f64>,
    /// Where to serve metrics, on the loopback interface
    #[arg(long)]
    metrics: Option<SocketAddr>,
    /// Act although the lease may have run out
    #[cfg(feature = "planted-bugs")]
    #[arg(long, hide = true)]
    no_lease_fence: bool,
    /// Write over what a later activation has written
    #[cfg(feature = "planted-bugs")]
    #[arg(long, hide = true)]
    no_store_fence: bool,
    /// Speak the wire's versions up to this one, as a later build would
    #[cfg(feature = "planted-bugs")]
    #[arg(long, hide = true)]
    wire_newest: Option<u16>,
}

impl NodeArguments {
    fn options(self) -> anyhow::Result<(ClusterAddress, NodeOptions)> {
        let options = NodeOptions {
            lease_ttl: ttl_of(seconds("lease", self.lease)?),
            period: seconds("period", self.period)?,
            net_mbit: more_than_nothing("what the network can carry", self.net_mbit)?,
            metrics: self.metrics,
            clock: Clock::start(),
            name: self.name,
            cpu_share: more_than_nothing(CPU_SHARE, self.cpu_share)?,
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

/// Logs to standard error what the environment variable `RUST_LOG` asks for; nothing if it is not set.
pub fn log_to_stderr() {
    log_to_stderr_or(None);
}

/// The same, or what `usually` asks for if the variable is not set.
fn log_to_stderr_or(usually: Option<&str>) {
    let filter = match usually {
        _ if std::env::var_os("RUST_LOG").is_some() => tracing_subscriber::EnvFilter::from_default_env(),
        Some(usually) => tracing_subscriber::EnvFilter::new(usually),
        None => return,
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// What a server without a supervisor logs: what its operator would want to know.
const LOGGED_BY_SERVERS: &str = "warn,elastin=info";

/// Runs the program as its arguments say.
pub(crate) fn main(app: App) -> ExitCode {
    carry_out(app, Arguments::parse())
}

/// Runs the program as `arguments` say, without the program's own name.
pub(crate) fn run(app: App, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once(OsString::from(app.cluster_name())).chain(arguments);
    carry_out(app, Arguments::parse_from(arguments))
}

fn carry_out(app: App, arguments: Arguments) -> ExitCode {
    match &arguments.command {
        Command::Node(arguments) if !arguments.address.is_supervised() => log_to_stderr_or(Some(LOGGED_BY_SERVERS)),
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

/// A time that was given in seconds.
fn seconds(what: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| anyhow::anyhow!("the {what} must be longer than 0 seconds"))
}

/// What an error calls the share of the processor.
const CPU_SHARE: &str = "the CPU share";

/// An amount, if one was given, that something can be divided by.
fn more_than_nothing(what: &str, amount: Option<f64>) -> anyhow::Result<Option<f64>> {
    let is_fine = amount.is_none_or(|amount| amount > 0.0 && amount.is_finite());
    anyhow::ensure!(is_fine, "{what} must be more than 0, and a number");
    Ok(amount)
}

/// Threads for connections and timers. Actors run on threads of their own, and on those that bring their mail: a second one
/// goes on if such an actor takes long.
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
    if let Some(share) = more_than_nothing(CPU_SHARE, cpu_share)? {
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
        eprintln!("the cluster runs at {}; interrupt it to end it", cluster.address());
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

    /// What is wrong with these arguments of a server.
    fn refused(argument: &str, value: &str) -> String {
        let arguments = ["app", "node", "--name", "server-1", &format!("{argument}={value}")];
        let Command::Node(arguments) = Arguments::try_parse_from(arguments).expect("it is a number").command else {
            panic!("it is a server");
        };
        let refused = arguments.options().err();
        refused.map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_server_is_told_which_of_its_numbers_makes_no_sense() {
        for nonsense in ["0", "-1", "NaN", "inf"] {
            assert_eq!(
                refused("--cpu-share", nonsense),
                "the CPU share must be more than 0, and a number"
            );
            assert_eq!(
                refused("--net-mbit", nonsense),
                "what the network can carry must be more than 0, and a number"
            );
            assert_eq!(refused("--lease", nonsense), "the lease must be longer than 0 seconds");
            assert_eq!(
                refused("--period", nonsense),
                "the period must be longer than 0 seconds"
            );
        }
        for argument in ["--cpu-share", "--net-mbit", "--lease", "--period"] {
            assert_eq!(refused(argument, "0.5"), "", "{argument} is fine");
        }
    }
}
