//! The contenders.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tokio_peer::{hold, measure};
use crate::workload::{Row, work};
use crate::{floor, ours, with_actix, with_coerce, with_kameo, with_murmer, with_orlando, with_ractor, with_xtra};

/// Starts this many actors, calls each once, and keeps them until the closure has run.
pub type Hold = fn(u64, &mut dyn FnMut());

/// Runs this many operations of a row and returns the time taken.
pub type Measure = fn(Row, u64) -> Duration;

/// An implementation to measure.
pub struct Contender {
    pub name: &'static str,
    pub measure: Measure,
    pub hold: Hold,
    /// The number of actors for measuring memory: enough to make fixed costs negligible, and few enough for the
    /// machine.
    pub held: u64,
}

pub const ELASTIN: &str = "elastin";
pub const FLOOR: &str = "floor";

/// All contenders. Those after the floor are libraries.
pub const ALL: [Contender; 9] = [
    contender(ELASTIN, ours::measure, ours::hold, 1_000_000),
    contender(FLOOR, measure::<floor::Floor>, hold::<floor::Floor>, 1_000_000),
    contender("actix", with_actix::measure, with_actix::hold, 1_000_000),
    contender(
        "coerce",
        measure::<with_coerce::Coerce>,
        hold::<with_coerce::Coerce>,
        200_000,
    ),
    contender(
        "kameo",
        measure::<with_kameo::Kameo>,
        hold::<with_kameo::Kameo>,
        200_000,
    ),
    contender(
        "murmer",
        measure::<with_murmer::Murmer>,
        hold::<with_murmer::Murmer>,
        200_000,
    ),
    contender(
        "orlando",
        measure::<with_orlando::Orlando>,
        hold::<with_orlando::Orlando>,
        200_000,
    ),
    contender(
        "ractor",
        measure::<with_ractor::Ractor>,
        hold::<with_ractor::Ractor>,
        200_000,
    ),
    contender("xtra", measure::<with_xtra::Xtra>, hold::<with_xtra::Xtra>, 1_000_000),
];

/// Variants of ours.
pub const VARIANTS: [Contender; 3] = [
    contender("elastin, string key", ours::measure, ours::hold_named, 1_000_000),
    contender(
        "elastin, no accounting",
        ours::measure_unaccounted,
        ours::hold,
        1_000_000,
    ),
    contender("two cores", two_cores, ours::hold, 1_000_000),
];

const fn contender(name: &'static str, measure: Measure, hold: Hold, held: u64) -> Contender {
    Contender {
        name,
        measure,
        hold,
        held,
    }
}

/// The contender with this name.
pub fn named(name: &str) -> Result<&'static Contender> {
    let mut known = ALL.iter().chain(&VARIANTS);
    let found = known.find(|contender| contender.name == name);
    found.with_context(|| format!("there is no contender `{name}`"))
}

impl Contender {
    pub fn is_library(&self) -> bool {
        self.name != ELASTIN && self.name != FLOOR
    }

    /// Whether it takes part in a row. actix has no tell from another thread with back-pressure; murmer and Orlando
    /// have no one-way messages.
    pub fn runs(&self, row: Row) -> bool {
        match self.name {
            "actix" => row != Row::TellThread,
            "murmer" | "orlando" => !matches!(row, Row::Tell | Row::TellThread | Row::Pipeline),
            _ => true,
        }
    }
}

/// The limit of two cores in the pipeline, without any communication.
fn two_cores(_row: Row, operations: u64) -> Duration {
    work();
    let half = || (0..operations).for_each(|_| work());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(half);
        scope.spawn(half);
    });
    begun.elapsed()
}
