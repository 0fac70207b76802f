//! The `elastin` command.

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
    /// See a policy at work: the Metadata Server of the PLASMA paper, without and with its policy
    Demo(demo::Options),
    /// Check, format, compile, explain and test elasticity policies
    #[command(subcommand)]
    Policy(policy::Command),
    /// Try to break the cluster's protocols in simulated worlds with random faults
    #[command(subcommand)]
    Sim(sim::Command),
    /// Run a server of the demo's cluster
    #[command(hide = true)]
    DemoServer {
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
