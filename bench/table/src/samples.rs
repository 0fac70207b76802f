//! One thing, measured several times.

use serde::Serialize;

/// What was measured in each round, smallest first.
#[derive(Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds what a round has measured.
    pub fn add(&mut self, sample: f64) {
        self.0.push(sample);
        self.0.sort_by(f64::total_cmp);
    }

    /// The one in the middle: a round that was disturbed does not move it.
    ///
    /// # Panics
    /// If nothing was measured.
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The smallest.
    ///
    /// # Panics
    /// If nothing was measured.
    pub fn lowest(&self) -> f64 {
        self.0[0]
    }

    /// The largest.
    ///
    /// # Panics
    /// If nothing was measured.
    pub fn highest(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}
