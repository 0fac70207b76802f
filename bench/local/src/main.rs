//! Calls and tells within one process: Elastin, other actor libraries, and the floor, in one run, alternating.
//!
//! `local [ROUNDS] [CONTENDER…] [ROW…] [memory] [instructions]`: by default five rounds of all contenders and rows.
//! Values are in operations per microsecond, so that more is better.

mod contender;
mod floor;
mod goals;
mod instructions;
mod memory;
mod node;
mod ours;
mod tokio_peer;
mod with_actix;
mod with_coerce;
mod with_kameo;
mod with_murmer;
mod with_orlando;
mod with_ractor;
mod with_xtra;
mod workload;

use std::collections::BTreeMap;

use anyhow::Result;
use bench_table::{Samples, Table};
use contender::{ALL, Contender, ELASTIN, FLOOR};
use workload::Row;

/// The default number of rounds.
const ROUNDS: usize = 5;

/// Samples by row and contender.
pub type Results = BTreeMap<(Row, &'static str), Samples>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [memory::CHILD, name] => memory::child(contender::named(name)?),
        [instructions::CHILD, name, row, operations] => instructions::child(contender::named(name)?, row, operations),
        wanted => suite(wanted),
    }
}

fn suite(wanted: &[&str]) -> Result<()> {
    let rounds = wanted
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(ROUNDS);
    let named: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|word| word.parse::<usize>().is_err())
        .collect();
    let is_wanted = |name: &str| named.is_empty() || named.contains(&name);
    let some_contender = ALL.iter().any(|contender| named.contains(&contender.name));
    let some_row = Row::ALL.iter().any(|row| named.contains(&row.key()));
    let only_extras = !named.is_empty() && !some_contender && !some_row;
    let contenders: Vec<_> = ALL
        .iter()
        .filter(|one| !some_contender || is_wanted(one.name))
        .collect();
    let rows: Vec<_> = match only_extras {
        true => Vec::new(),
        false => Row::ALL
            .into_iter()
            .filter(|row| !some_row || is_wanted(row.key()))
            .collect(),
    };
    let mut table = Table { rows: Vec::new() };
    if !rows.is_empty() {
        let results = measure_rows(rounds, &rows, &contenders);
        print_all(&rows, &contenders, &results);
        table
            .rows
            .extend(rows.iter().flat_map(|row| goals::of_row(*row, &results)));
    }
    if is_wanted("instructions") {
        let rows = if rows.is_empty() { Row::ALL.to_vec() } else { rows };
        print_instructions(&rows)?;
    }
    if is_wanted("memory") {
        table.rows.extend(goals::of_memory()?);
    }
    if named.is_empty() || only_extras && named.contains(&"accounting") {
        table.rows.push(goals::of_accounting(rounds));
    }
    table.finish("local")
}

/// Measures all contenders in each row, alternating, so that a disturbance affects all of them.
fn measure_rows(rounds: usize, rows: &[Row], contenders: &[&Contender]) -> Results {
    let mut results = Results::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for &row in rows {
            for contender in contenders.iter().filter(|contender| contender.runs(row)) {
                let known = contender.name != ELASTIN && row.of_peer() != row && rows.contains(&row.of_peer());
                if !known {
                    add(&mut results, row, contender, row.operations());
                }
            }
            if row == Row::Pipeline {
                let ideal = contender::named("two cores").expect("it is in the table");
                add(&mut results, row, ideal, row.operations());
            }
        }
    }
    for &row in rows.iter().filter(|row| row.of_peer() != **row) {
        for contender in contenders {
            if let Some(samples) = results.get(&(row.of_peer(), contender.name)).cloned() {
                results.entry((row, contender.name)).or_insert(samples);
            }
        }
    }
    results
}

fn add(results: &mut Results, row: Row, contender: &Contender, operations: u64) {
    let taken = (contender.measure)(row, operations);
    let rate = operations as f64 / (taken.as_secs_f64() * 1e6);
    results.entry((row, contender.name)).or_default().add(rate);
}

/// Prints the times of all contenders.
fn print_all(rows: &[Row], contenders: &[&Contender], results: &Results) {
    print!("{:<44}", "ns per operation, median");
    contenders.iter().for_each(|contender| print!("{:>9}", contender.name));
    println!();
    for &row in rows {
        print!("{:<44}", row.name());
        for contender in contenders {
            match results.get(&(row, contender.name)) {
                Some(samples) => print!("{:>9.0}", 1000.0 / samples.median()),
                None => print!("{:>9}", "–"),
            }
        }
        println!();
    }
    println!();
}

/// Prints the instructions per operation of ours and of the floor.
fn print_instructions(rows: &[Row]) -> Result<()> {
    println!("{:<44}{:>9}{:>9}", "instructions per operation", ELASTIN, FLOOR);
    for &row in rows.iter().filter(|row| row.has_instructions()) {
        print!("{:<44}", row.name());
        for (name, row) in [(ELASTIN, row), (FLOOR, row.of_peer())] {
            match instructions::measure(contender::named(name)?, row)? {
                Some(count) => print!("{count:>9.0}"),
                None => print!("{:>9}", "unknown"),
            }
        }
        println!();
    }
    println!();
    Ok(())
}
