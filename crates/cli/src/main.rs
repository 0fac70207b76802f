//! The `elastin` command.

mod authority;
mod cluster;
mod demo;
mod output;
mod policy;
mod sim;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "elastin", version, about = "Programmable elasticity for stateful services")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the metadata server of the PLASMA paper without and with its policy, and compare the latencies
    Demo(demo::Options),
    /// Check, format, compile, explain and test elasticity policies
    #[command(subcommand)]
    Policy(policy::Command),
    /// Simulate the cluster's protocols under random faults, and check their invariants
    #[command(subcommand)]
    Sim(sim::Command),
    /// Show the servers of a running cluster
    Status {
        #[command(flatten)]
        args: cluster::ClusterArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Move an actor of a running cluster to a server; policies are not consulted
    Move {
        /// The actor: its type and its key, such as Folder/7
        actor: String,
        /// The name of the server
        server: String,
        #[command(flatten)]
        args: cluster::ClusterArgs,
    },
    /// Drain a server of a running cluster: move its actors away, then let it leave
    Drain {
        /// The name of the server
        server: String,
        #[command(flatten)]
        args: cluster::ClusterArgs,
    },
    /// Create the certificates with which the members of a cluster authenticate each other
    #[command(subcommand)]
    Ca(authority::Command),
    /// Run a server of the demo's cluster
    #[command(hide = true)]
    DemoServer {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a server of the chaos demo's cluster
    #[command(hide = true)]
    ChaosServer {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Demo(options) => {
            elastin::log_to_stderr();
            demo::run(&options)
        }
        Command::Policy(command) => policy::run(&command),
        Command::Sim(command) => sim::run(&command),
        Command::Status { args, json } => cluster::status(&args, json),
        Command::Move { actor, server, args } => cluster::move_actor(&args, &actor, &server),
        Command::Drain { server, args } => cluster::drain(&args, &server),
        Command::Ca(command) => authority::run(&command),
        Command::ChaosServer { arguments } => return demo::chaos::app().run(arguments),
        Command::DemoServer { arguments } => return metadata_server::app().run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
