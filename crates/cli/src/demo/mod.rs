//! The demos. `elastin demo`: the experiment of section 5.3 of the PLASMA paper on an embedded cluster, without and
//! with the policy.

pub(crate) mod chaos;
mod experiment;
mod summary;
mod view;

use std::time::Duration;

use clap::{Args, Subcommand};

use experiment::Experiment;

/// Options of the demo.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// The duration of each of the two runs, in seconds
    #[arg(long, default_value_t = 28, value_parser = clap::value_parser!(u64).range(15..=600))]
    seconds: u64,
    /// The share of one core that each server may use
    #[arg(long, default_value_t = 0.25, value_parser = share)]
    cpu_share: f64,
    /// The elasticity period in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    period: u64,
}

/// Another demo.
#[derive(Subcommand)]
enum Other {
    /// Move actors and kill servers under load, and check that nothing is lost
    Chaos(chaos::Options),
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share of one core is a number above 0 and at most 1".into()),
    }
}

/// Runs the demo. Fails if a call failed, order was lost, or the policy gained too little.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(Other::Chaos(options)) = &options.other {
        return chaos::run(options);
    }
    let experiment = Experiment {
        length: Duration::from_secs(options.seconds),
        cpu_share: options.cpu_share,
        period: Duration::from_secs(options.period),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (without, with) = runtime.block_on(async {
        let without = experiment.run("1 of 2  without a policy", false).await?;
        let with = experiment.run("2 of 2  with the policy", true).await?;
        anyhow::Ok((without, with))
    })?;
    summary::print(&without, &with);
    summary::check(&without, &with)
}
