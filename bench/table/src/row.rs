//! One result.

use std::fmt;

use serde::Serialize;

use crate::Samples;

/// The goal for a ratio.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Goal::AtLeast(least) => ratio >= least,
            Goal::AtMost(most) => ratio <= most,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtLeast(least) => write!(out, "at least {}x", rounded(*least)),
            Goal::AtMost(most) => write!(out, "at most {}x", rounded(*most)),
        }
    }
}

/// A measurement and its counterpart. Values are medians over all rounds.
#[derive(Serialize)]
pub struct Row {
    name: String,
    unit: &'static str,
    ours: f64,
    lowest: f64,
    highest: f64,
    peer: String,
    peer_value: f64,
    peer_lowest: f64,
    peer_highest: f64,
    /// Ours as a multiple of the peer's.
    ratio: f64,
    goal: Option<Goal>,
    /// Whether the goal is met; true if there is none.
    pub(crate) met: bool,
}

impl Row {
    /// A result without a goal.
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        ours: &Samples,
        peer: impl Into<String>,
        theirs: &Samples,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            ours: ours.median(),
            lowest: ours.lowest(),
            highest: ours.highest(),
            peer: peer.into(),
            peer_value: theirs.median(),
            peer_lowest: theirs.lowest(),
            peer_highest: theirs.highest(),
            ratio: ours.median() / theirs.median(),
            goal: None,
            met: true,
        }
    }

    /// Sets the goal for the ratio.
    pub fn goal(mut self, goal: Goal) -> Self {
        self.met = goal.is_met(self.ratio);
        self.goal = Some(goal);
        self
    }

    /// A description of the missed goal.
    pub(crate) fn missed(&self) -> String {
        let goal = self.goal.map_or(String::new(), |goal| goal.to_string());
        format!("{} is {:.2}x of {}, not {goal}", self.name, self.ratio, self.peer)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = format!("{} {}", number(self.ours), self.unit);
        let spread = format!("{} to {}", number(self.lowest), number(self.highest));
        let peer = format!("{}: {}", self.peer, number(self.peer_value));
        let goal = self.goal.map_or(String::new(), |goal| goal.to_string());
        write!(
            out,
            "{:<46} {value:>14} {spread:>24}   {peer:<44} {:>7.2}x {goal:>15}",
            self.name, self.ratio
        )
    }
}

/// A goal with at most two decimals: some are computed from measurements.
fn rounded(goal: f64) -> f64 {
    (goal * 100.0).round() / 100.0
}

/// A number with its significant digits.
fn number(value: f64) -> String {
    match value {
        value if value.abs() >= 100.0 => format!("{value:.0}"),
        value if value.abs() >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        values.iter().for_each(|value| samples.add(*value));
        samples
    }

    #[test]
    fn a_goal_applies_to_the_ratio_of_the_medians() {
        let (ours, theirs) = (samples(&[9.0, 100.0, 8.0]), samples(&[3.0, 0.1, 4.0]));
        let row = || Row::new("ours", "ms", &ours, "theirs", &theirs);
        assert!(row().met, "without a goal there is nothing to miss");
        assert!(row().goal(Goal::AtMost(3.0)).met);
        assert!(row().goal(Goal::AtLeast(3.0)).met);
        assert!(!row().goal(Goal::AtMost(2.9)).met);
        let missed = row().goal(Goal::AtLeast(3.5));
        assert_eq!(missed.missed(), "ours is 3.00x of theirs, not at least 3.5x");
    }
}
