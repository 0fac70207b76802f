//! The speed of the simulator, and the cost of the directory of a large cluster.
//!
//! `cargo xtask bench sim` prints the table and writes `target/bench/sim.json`. Rates are compared with the project's
//! targets.

mod directory;

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench_table::{Goal, Row, Samples, Table};
use elastin_sim::{Faults, Options, empty_a_server, run};

/// The number of measurements of each subject, alternating so that a disturbance affects all of them.
const ROUNDS: u64 = 5;
/// The duration of the workload in the measured world.
const SIMULATED: Duration = Duration::from_secs(10);
/// The number of actors of the drained server.
const DRAINED: u64 = 100_000;
/// The target for one core.
const EVENTS_PER_SECOND: f64 = 200_000.0;
/// The target for an actor in the directory, beyond its id.
const BYTES_PER_ACTOR: f64 = 64.0;

fn main() -> Result<()> {
    let mut events = Samples::default();
    let mut simulated = Samples::default();
    let mut bytes = Samples::default();
    let mut few = Samples::default();
    let mut many = Samples::default();
    let mut emptied = Samples::default();
    let mut emptying = Samples::default();
    for round in 0..ROUNDS {
        eprintln!("round {} of {ROUNDS}", round + 1);
        let (events_per_second, seconds_per_second) = world(round)?;
        events.add(events_per_second);
        simulated.add(seconds_per_second);
        bytes.add(directory::bytes_per_actor());
        few.add(directory::hand_over_slots(4_000) * 1e6);
        many.add(directory::hand_over_slots(1_000_000) * 1e6);
    }
    let (in_simulated, in_real) = drain_server(ROUNDS)?;
    emptied.add(in_simulated);
    emptying.add(in_real);
    let rows = vec![
        Row::new(
            "protocol events, 5 nodes, 1,000 actors",
            "/s",
            &events,
            "wanted per core",
            &constant(EVENTS_PER_SECOND),
        )
        .goal(Goal::AtLeast(1.0)),
        Row::new(
            "the same world, simulated time",
            "s/s",
            &simulated,
            "real time",
            &constant(1.0),
        ),
        Row::new(
            "directory, beyond each actor's id",
            "B",
            &bytes,
            "allowed",
            &constant(BYTES_PER_ACTOR),
        )
        .goal(Goal::AtMost(1.0)),
        // The moved slots have the same number of actors in both.
        Row::new(
            "4 slots go, owner of 4,096 with 1,000,000",
            "µs",
            &many,
            "owner of 16 with 4,000 actors",
            &few,
        )
        .goal(Goal::AtMost(3.0)),
        Row::new(
            "a server of 100,000 is emptied, simulated",
            "s",
            &emptied,
            "real time",
            &emptying,
        ),
    ];
    Table { rows }.finish("sim")
}

fn constant(value: f64) -> Samples {
    let mut samples = Samples::default();
    samples.add(value);
    samples
}

/// The simulated and the real seconds of draining a large server while its actors are called.
fn drain_server(seed: u64) -> Result<(f64, f64)> {
    let start = Instant::now();
    let drain = black_box(empty_a_server(seed, DRAINED));
    ensure!(drain.violations.is_empty(), "seed {seed}: {:?}", drain.violations);
    ensure!(drain.moved >= DRAINED, "seed {seed}: {drain:?}");
    Ok((drain.simulated.as_secs_f64(), start.elapsed().as_secs_f64()))
}

/// Events and simulated seconds per real second of a world with a thousand calls and a fault per second.
fn world(seed: u64) -> Result<(f64, f64)> {
    let options = Options {
        servers: 5,
        clients: 2,
        actors: 1000,
        saves: true,
        duration: SIMULATED,
        calls_per_second: 1000,
        moves_per_second: 20,
        // Together one a second.
        faults: Faults {
            crashes: 20,
            pauses: 20,
            breaks: 30,
            cuts: 20,
            suspicions: 10,
            ..Faults::default()
        },
        ..Options::default()
    };
    let start = Instant::now();
    let report = black_box(run(seed, &options));
    let real = start.elapsed().as_secs_f64();
    ensure!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    Ok((report.events as f64 / real, report.simulated.as_secs_f64() / real))
}
