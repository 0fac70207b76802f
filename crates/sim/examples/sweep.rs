//! Runs many seeds and prints the event counts:
//! `cargo run --release -p elastin-sim --example sweep -- [first] [count] [short]`.
//! With `short`, worlds take a quarter of the time and have four times the fault rates.
#![expect(clippy::print_stdout, reason = "it is a command")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use elastin_sim::{options_of_seed, run, run_traced};

/// The number of log lines shown before a violation, unless WHOLE is set.
const LINES_SHOWN: usize = 80;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_short = arguments.iter().any(|text| text == "short");
    let mut numbers = arguments
        .iter()
        .filter(|text| *text != "short")
        .map(|text| text.parse::<u64>().expect("a number"));
    let first = numbers.next().unwrap_or(0);
    let count = numbers.next().unwrap_or(500);
    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    let start = Instant::now();
    let mut counters: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut events, mut simulated) = (0, Duration::ZERO);
    for seed in first..first + count {
        let mut options = options_of_seed(seed);
        if is_short {
            options = options.shortened();
        }
        let report = run(seed, &options);
        events += report.events;
        simulated += report.simulated;
        for (name, times) in report.counters {
            *counters.entry(name).or_insert(0) += times;
        }
        if !report.violations.is_empty() {
            let report = run_traced(seed, &options);
            match std::env::var_os("WHOLE") {
                Some(_) => println!("{}", report.whole()),
                None => println!("{}", report.around(&report.violations[0], LINES_SHOWN)),
            }
            for violation in &report.violations {
                println!("seed {seed} BROKEN {}: {}", violation.invariant, violation.what);
            }
            println!("{options:?}");
            std::process::exit(1);
        }
    }
    for (name, times) in counters {
        println!("{times:>10}  {name}");
    }
    let real = start.elapsed().as_secs_f64();
    let simulated = simulated.as_secs_f64();
    println!(
        "{count} seeds, {events} events, {simulated:.0} s simulated in {real:.1} s: {:.0} events/s, {:.0} simulated s/s",
        events as f64 / real,
        simulated / real
    );
}
