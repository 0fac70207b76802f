//! The results, for people and for machines.

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::load::Rate;

/// One way of writing.
#[derive(Serialize)]
pub(crate) struct Row {
    workload: String,
    /// The median of all rounds.
    writes_per_second: f64,
    lowest: f64,
    highest: f64,
    /// How many times as fast as one commit per write.
    ratio: f64,
    /// The ratio that must be reached.
    goal: Option<f64>,
}

impl Row {
    pub(crate) fn new(workload: String, rate: &Rate, base: &Rate, goal: Option<f64>) -> Self {
        Self {
            workload,
            writes_per_second: rate.median(),
            lowest: rate.lowest(),
            highest: rate.highest(),
            ratio: rate.median() / base.median(),
            goal,
        }
    }

    fn reached(&self) -> bool {
        self.goal.is_none_or(|goal| self.ratio >= goal)
    }
}

/// All results of the suite.
#[derive(Serialize)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

impl Table {
    pub(crate) fn print(&self) {
        println!(
            "{:<46} {:>10} {:>22} {:>8} {:>8}",
            "durable writes per second", "median", "lowest to highest", "ratio", "goal"
        );
        for row in &self.rows {
            let spread = format!("{:.0} to {:.0}", row.lowest, row.highest);
            let goal = row.goal.map_or(String::new(), |goal| format!("{goal:.1}x"));
            println!(
                "{:<46} {:>10.0} {spread:>22} {:>7.1}x {goal:>8}",
                row.workload, row.writes_per_second, row.ratio
            );
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        for row in &self.rows {
            ensure!(row.reached(), "{}: {:.1}x", row.workload, row.ratio);
        }
        Ok(())
    }
}
