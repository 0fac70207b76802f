//! Calls and tells within one process: Elastin, other actor libraries, and the floor, in one run, alternating.
//!
//! `local [ROUNDS] [CONTENDER…] [ROW…] [memory]`: five rounds of everybody and everything unless said otherwise.

mod floor;
mod memory;
mod ours;
mod with_actix;
mod with_coerce;
mod with_kameo;
mod with_ractor;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use workload::Row;

/// How many rounds there are unless the command line says otherwise.
const ROUNDS: usize = 5;

/// How many threads everybody has.
const WORKERS: usize = 2;

type Measure = fn(Row, usize) -> Duration;

const CONTENDERS: [(&str, Measure); 6] = [
    ("elastin", ours::measure),
    ("floor", floor::measure),
    ("actix", with_actix::measure),
    ("coerce", with_coerce::measure),
    ("kameo", with_kameo::measure),
    ("ractor", with_ractor::measure),
];

const HOLDERS: [(&str, memory::Hold); 7] = [
    ("elastin", ours::hold),
    ("elastin, string key", ours::hold_named),
    ("floor", floor::hold),
    ("actix", with_actix::hold),
    ("coerce", with_coerce::hold),
    ("kameo", with_kameo::hold),
    ("ractor", with_ractor::hold),
];

fn main() -> Result<()> {
    let first: Vec<String> = std::env::args().skip(1).take(2).collect();
    if let [mode, name] = &first[..]
        && mode == memory::CHILD
    {
        let holder = HOLDERS.iter().find(|(known, _)| known == name);
        return memory::child(holder.context("there is no such contender")?.1);
    }
    let mut arguments = std::env::args().skip(1).peekable();
    let rounds = arguments.next_if(|argument| argument.parse::<usize>().is_ok());
    let rounds = rounds.map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let wanted: Vec<String> = arguments.collect();
    let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted == name);
    let contenders = chosen(&CONTENDERS, |(name, _)| is_wanted(name));
    let mut rows = chosen(&Row::ALL, |row| is_wanted(row.key()));
    if wanted == ["memory"] {
        rows.clear();
    }
    // Nanoseconds per operation.
    let mut samples: BTreeMap<(Row, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for &row in &rows {
            for (name, measure) in &contenders {
                let taken = measure(row, WORKERS);
                let each = taken.as_secs_f64() * 1e9 / row.operations() as f64;
                samples.entry((row, name)).or_default().push(each);
            }
        }
    }
    let mut results = Vec::new();
    for row in rows {
        println!("\n{}", row.name());
        let ours = samples.get(&(row, "elastin")).map(|samples| spread(samples).1);
        for (name, _) in &contenders {
            let (low, median, high) = spread(&samples[&(row, *name)]);
            let ratio = ours.map_or(String::new(), |ours| format!("{:6.2}x", median / ours));
            println!("  {name:10} {median:9.1} ns   ({low:.1} to {high:.1})   elastin is {ratio}");
            results.push(serde_json::json!({
                "row": row.name(),
                "contender": name,
                "ns": { "median": median, "low": low, "high": high },
                "elastin_is_times_faster": ours.map(|ours| median / ours),
            }));
        }
    }
    if wanted.is_empty() || is_wanted("memory") {
        println!("\nresident bytes per idle actor, called once, registry included");
        let ours = memory::measure("elastin")?;
        for (name, _) in HOLDERS {
            let bytes = memory::measure(name)?;
            println!("  {name:20} {bytes:9.0} B   elastin has {:5.2} of it", ours / bytes);
            results.push(serde_json::json!({ "row": "memory", "contender": name, "bytes": bytes }));
        }
    }
    std::fs::create_dir_all("target/bench")?;
    let text = serde_json::to_string_pretty(&results)?;
    std::fs::write("target/bench/local.json", text).context("the results can't be written")
}

/// Those that are wanted, or all if none is.
fn chosen<T: Copy>(all: &[T], wanted: impl Fn(&T) -> bool) -> Vec<T> {
    let some: Vec<T> = all.iter().copied().filter(|one| wanted(one)).collect();
    if some.is_empty() { all.to_vec() } else { some }
}

/// The lowest, the median and the highest.
fn spread(samples: &[f64]) -> (f64, f64, f64) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}
