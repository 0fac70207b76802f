//! `elastin sim`: runs the protocols in simulated worlds with faults and checks their invariants.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Args, Subcommand};
use elastin_sim::{Options, Report, options_of_seed, run as simulate, run_traced};

use crate::output::print;

/// The number of log lines shown around a violation.
const LINES_SHOWN: usize = 60;

/// The interval of progress reports of a long sweep.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the cluster's protocols in worlds with random faults, and check every invariant
    Protocol(Protocol),
}

#[derive(Args)]
pub(crate) struct Protocol {
    /// The first seed; a seed decides everything about a world
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The number of worlds, one for each seed from the first on
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The number of servers; by default the seed decides it
    #[arg(long)]
    nodes: Option<usize>,
    /// Simulate a quarter of the time, with faults four times as often
    #[arg(long)]
    short: bool,
    /// Print the full trace
    #[arg(long)]
    trace: bool,
}

/// Totals over many worlds.
#[derive(Default)]
struct Sweep {
    worlds: u64,
    events: u64,
    simulated: Duration,
    counters: BTreeMap<&'static str, u64>,
}

impl Sweep {
    fn add(&mut self, report: &Report) {
        self.worlds += 1;
        self.events += report.events;
        self.simulated += report.simulated;
        for (name, count) in &report.counters {
            *self.counters.entry(name).or_default() += count;
        }
    }

    fn show(&self, took: Duration) -> String {
        let mut text = format!(
            "{} worlds, {:.1} simulated minutes, {} events in {:.1} s ({:.0} events/s, {:.1} simulated s per s)\n",
            self.worlds,
            self.simulated.as_secs_f64() / 60.0,
            self.events,
            took.as_secs_f64(),
            self.events as f64 / took.as_secs_f64(),
            self.simulated.as_secs_f64() / took.as_secs_f64(),
        );
        for (name, count) in &self.counters {
            text += &format!("  {count:>10}  {name}\n");
        }
        text
    }
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Protocol(protocol) = command;
    let began = Instant::now();
    let mut reported_at = Duration::ZERO;
    let mut sweep = Sweep::default();
    for seed in protocol.seed..protocol.seed.saturating_add(protocol.seeds) {
        let options = protocol.options(seed)?;
        let report = simulate(seed, &options);
        if protocol.trace {
            print(&format!("{}\n", run_traced(seed, &options).whole()));
        }
        if !report.violations.is_empty() {
            print(&protocol.failure(&report, &options));
            bail!("seed {seed} violates {} invariants", report.violations.len());
        }
        sweep.add(&report);
        if began.elapsed() > reported_at + PROGRESS_EVERY {
            reported_at = began.elapsed();
            eprintln!("{} of {} worlds", sweep.worlds, protocol.seeds);
        }
    }
    print(&sweep.show(began.elapsed()));
    print("no invariant was violated\n");
    Ok(())
}

impl Protocol {
    fn options(&self, seed: u64) -> anyhow::Result<Options> {
        let mut options = options_of_seed(seed);
        if let Some(servers) = self.nodes {
            anyhow::ensure!(
                (1..=1000).contains(&servers),
                "a world has from 1 to 1000 servers, not {servers}"
            );
            options.servers = servers;
        }
        if self.short {
            options = options.shortened();
        }
        Ok(options)
    }

    /// The violation, the log before it, and the command that replays it.
    fn failure(&self, report: &Report, options: &Options) -> String {
        let seed = report.seed;
        let nodes = self.nodes.map_or_else(String::new, |nodes| format!(" --nodes {nodes}"));
        let short = if self.short { " --short" } else { "" };
        let mut text = run_traced(seed, options).around(&report.violations[0], LINES_SHOWN);
        text += "\n\n";
        for violation in &report.violations {
            text += &format!("VIOLATED {}: {}\n", violation.invariant, violation.what);
        }
        text + &format!("full trace: elastin sim protocol --seed {seed}{nodes}{short} --trace\n")
    }
}
