//! The goals of each row.

use anyhow::Result;
use bench_table::{Goal, Row as Line, Samples};

use crate::Results;
use crate::contender::{self, ALL, ELASTIN, FLOOR, VARIANTS};
use crate::memory;
use crate::workload::Row;

const UNIT: &str = "/µs";

/// The contender that a row is compared with.
enum Against {
    BestLibrary,
    Contender(&'static str),
}

use Against::{BestLibrary, Contender};

fn goals(row: Row) -> Vec<(Against, f64)> {
    match row {
        Row::CallIdle | Row::CallIdleAsync => vec![(BestLibrary, 4.0), (Contender(FLOOR), 4.0)],
        Row::CallAwaits | Row::CallAwaitsOutside => vec![(BestLibrary, 1.0), (Contender(FLOOR), 0.95)],
        Row::Tell => vec![(BestLibrary, 1.0)],
        Row::TellThread => vec![(Contender(FLOOR), 1.0)],
        Row::Pipeline => vec![(Contender("two cores"), 0.8)],
        Row::Many | Row::ManyOutside => vec![(BestLibrary, 1.0)],
        Row::ManyAwait | Row::ManyAwaitOutside => vec![(BestLibrary, 1.0)],
        Row::Hot | Row::HotOutside => vec![(Contender(FLOOR), 0.9)],
    }
}

/// The lines of a row, for those of its opponents that were measured.
pub fn of_row(row: Row, results: &Results) -> Vec<Line> {
    let Some(ours) = results.get(&(row, ELASTIN)) else {
        return Vec::new();
    };
    let line = |(against, goal): (Against, f64)| {
        let name = match against {
            Contender(name) => name,
            BestLibrary => best_library(row, results)?,
        };
        let theirs = results.get(&(row, name))?;
        Some(Line::new(row.name(), UNIT, ours, name, theirs).goal(Goal::AtLeast(goal)))
    };
    goals(row).into_iter().filter_map(line).collect()
}

fn best_library(row: Row, results: &Results) -> Option<&'static str> {
    let libraries = ALL.iter().filter(|contender| contender.is_library());
    let measured = libraries.filter_map(|library| Some((results.get(&(row, library.name))?.median(), library.name)));
    measured
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// Bytes per idle actor.
pub fn of_memory() -> Result<Vec<Line>> {
    let mut best: Option<(f64, &str)> = None;
    println!(
        "resident bytes per idle actor, called once, registry included; ours with the directory's entry and the host's"
    );
    for contender in &ALL {
        let bytes = memory::measure(contender)?;
        println!("  {:<22}{bytes:>8.0} B", contender.name);
        if contender.is_library() && best.is_none_or(|(least, _)| bytes < least) {
            best = Some((bytes, contender.name));
        }
    }
    println!();
    let (bytes, name) = best.expect("there are libraries");
    let theirs = sample(bytes);
    let line = |title, contender, goal| -> Result<Line> {
        let ours = sample(memory::measure(contender)?);
        Ok(Line::new(title, "B", &ours, name, &theirs).goal(Goal::AtMost(goal)))
    };
    Ok(vec![
        line("an idle actor with a number key", &ALL[0], 0.5)?,
        line("an idle actor with a string key", &VARIANTS[0], 0.5)?,
    ])
}

fn sample(value: f64) -> Samples {
    let mut samples = Samples::default();
    samples.add(value);
    samples
}

/// The most that accounting may cost per turn, in nanoseconds.
const ACCOUNTING_NS_MAX: f64 = 8.0;

/// The cost of accounting: the same calls with and without it, alternating.
pub fn of_accounting(rounds: usize) -> Line {
    let (mut cost, mut limit) = (Samples::default(), Samples::default());
    let without = contender::named("elastin, no accounting").expect("it is in the table");
    let operations = Row::CallIdle.operations();
    let each = |measure: contender::Measure| measure(Row::CallIdle, operations).as_secs_f64() * 1e9 / operations as f64;
    for _ in 0..rounds.max(5) {
        let with = each(ALL[0].measure);
        cost.add((with - each(without.measure)).max(0.0));
        limit.add(ACCOUNTING_NS_MAX);
    }
    Line::new("accounting, per turn", "ns", &cost, "allowed", &limit).goal(Goal::AtMost(1.0))
}
