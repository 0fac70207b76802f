//! Calls between two processes: ours, the peers', and the floors, alternating.

use std::collections::BTreeMap;

use anyhow::Result;
use bench_table::{Goal, Row, Samples};

use crate::contestant::Contestant;
use crate::load::Work;
use crate::{floor, ours, peers, raw, spinner};

/// The number of measurements of each contestant, alternating so that a disturbance affects all of them.
const ROUNDS: usize = 5;
const CALLS: usize = 2_000;

const OURS: &str = "Elastin";
const RAW: &str = "raw TCP";
const FLOOR: &str = "a tokio RPC by hand";

/// The measurements of each contestant.
type Results = BTreeMap<String, Samples>;

/// All rows of calls.
pub(crate) async fn rows() -> Result<Vec<Row>> {
    compare_with(peers::connect().await?).await
}

/// Like [`rows`] without other libraries: the distance of ours from the floor.
pub(crate) async fn floors() -> Result<Vec<Row>> {
    compare_with(Vec::new()).await
}

async fn compare_with(peers: Vec<Box<dyn Contestant>>) -> Result<Vec<Row>> {
    let mut raw = raw::connect().await?;
    let mut others: Vec<Box<dyn Contestant>> =
        vec![Box::new(ours::connect().await?), Box::new(floor::connect().await?)];
    others.extend(peers);
    let mut rows = Vec::new();
    for (awake, machine) in [(false, ""), (true, ", cores kept awake")] {
        let spinners = if awake { spinner::start()? } else { Vec::new() };
        let works = [Work::OneAfterAnother(CALLS), Work::InFlight(64), Work::InFlight(512)];
        for work in works {
            let mut results = Results::new();
            for round in 1..=ROUNDS {
                eprintln!("{}{machine}: round {round} of {ROUNDS}", work.name());
                if matches!(work, Work::OneAfterAnother(_)) {
                    results.entry(RAW.into()).or_default().add(raw.measure(work).await?);
                }
                for contestant in &mut others {
                    let measured = contestant.measure(work).await?;
                    results.entry(contestant.name().into()).or_default().add(measured);
                }
            }
            rows.extend(compare(work, machine, &results));
        }
        drop(spinners);
    }
    Ok(rows)
}

/// Runs one contestant with a fixed number of calls in flight, for a profiler, and prints the result.
pub(crate) async fn alone(name: &str, in_flight: &str) -> Result<()> {
    let mut contestant: Box<dyn Contestant> = match name {
        "ours" => Box::new(ours::connect().await?),
        "encrypted" => Box::new(ours::connect_encrypted().await?),
        "floor" => Box::new(floor::connect().await?),
        "raw" => Box::new(raw::connect().await?),
        other => anyhow::bail!("unknown contestant: {other}"),
    };
    let work = match in_flight.parse()? {
        1 => Work::OneAfterAnother(10 * CALLS),
        callers => Work::InFlight(callers),
    };
    for _ in 0..ROUNDS {
        eprintln!(
            "{}: {:.1} {}",
            work.name(),
            contestant.measure(work).await?,
            work.unit()
        );
    }
    Ok(())
}

/// The cost of encryption, with many calls in flight.
pub(crate) async fn encrypted() -> Result<Vec<Row>> {
    let (mut plain, mut encrypted) = (ours::connect().await?, ours::connect_encrypted().await?);
    let work = Work::InFlight(512);
    let mut rows = Vec::new();
    for (awake, machine) in [(false, ""), (true, ", cores kept awake")] {
        let spinners = if awake { spinner::start()? } else { Vec::new() };
        let (mut with, mut without) = (Samples::default(), Samples::default());
        for round in 1..=ROUNDS {
            eprintln!("{} in TLS{machine}: round {round} of {ROUNDS}", work.name());
            without.add(plain.measure(work).await?);
            with.add(encrypted.measure(work).await?);
        }
        drop(spinners);
        let name = format!("{} in TLS{machine}", work.name());
        let row = Row::new(name, work.unit(), &with, "the same in plain text", &without);
        rows.push(row.goal(Goal::AtLeast(0.7)));
    }
    Ok(rows)
}

impl Work {
    fn name(self) -> String {
        match self {
            Work::OneAfterAnother(_) => "one call after another, p50".into(),
            Work::InFlight(callers) => format!("{callers} calls in flight"),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Work::OneAfterAnother(_) => "µs",
            Work::InFlight(_) => "/s",
        }
    }
}

fn compare(work: Work, machine: &str, results: &Results) -> Vec<Row> {
    let ours = &results[OURS];
    let row = |peer: &str| {
        let name = format!("{}{machine}", work.name());
        Row::new(name, work.unit(), ours, peer, &results[peer])
    };
    let is_library = |name: &&String| ![OURS, RAW, FLOOR].contains(&name.as_str());
    let libraries: Vec<&String> = results.keys().filter(is_library).collect();
    let faster_first = |one: &&&String, other: &&&String| {
        let (one, other) = (results[**one].median(), results[**other].median());
        match work {
            Work::OneAfterAnother(_) => one.total_cmp(&other),
            Work::InFlight(_) => other.total_cmp(&one),
        }
    };
    let (floor, floor_goal) = match work {
        Work::OneAfterAnother(_) => (RAW, Goal::AtMost(1.15)),
        Work::InFlight(_) => (FLOOR, Goal::AtLeast(0.6)),
    };
    let mut rows = vec![row(floor).goal(floor_goal)];
    let Some(best) = libraries.iter().min_by(faster_first) else {
        return rows;
    };
    let best_goal = match work {
        // No peer may be ahead by more than the spread of its own results.
        Work::OneAfterAnother(_) => {
            let spread = (results[*best].highest() - results[*best].lowest()) / results[*best].median();
            Goal::AtMost(1.0 + spread)
        }
        Work::InFlight(64) => Goal::AtLeast(2.5),
        Work::InFlight(_) => Goal::AtLeast(3.0),
    };
    rows.push(row(best).goal(best_goal));
    rows.extend(libraries.iter().filter(|name| *name != best).map(|name| row(name)));
    rows
}
