//! Repeated measurements of one quantity.

use serde::Serialize;

/// The measurements of all rounds, in ascending order.
#[derive(Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds the measurement of a round.
    pub fn add(&mut self, sample: f64) {
        self.0.push(sample);
        self.0.sort_by(f64::total_cmp);
    }

    /// The median, which a disturbed round does not move.
    ///
    /// # Panics
    /// If there is no sample.
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The smallest sample.
    ///
    /// # Panics
    /// If there is no sample.
    pub fn lowest(&self) -> f64 {
        self.0[0]
    }

    /// The largest sample.
    ///
    /// # Panics
    /// If there is no sample.
    pub fn highest(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}
