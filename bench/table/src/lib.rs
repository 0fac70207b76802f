//! The results of a suite, as text and as JSON: measurements, their counterparts, and whether the goals are met.

mod row;
mod samples;

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

pub use row::{Goal, Row};
pub use samples::Samples;

/// All results of a suite; a list of rows as JSON.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Table {
    /// The rows, one result each.
    pub rows: Vec<Row>,
}

impl Table {
    /// Prints the table, writes it to `target/bench/SUITE.json` and then fails if a goal is missed, so that a missed
    /// goal can be investigated.
    pub fn finish(&self, suite: &str) -> Result<()> {
        self.print();
        let results = Path::new("target/bench");
        std::fs::create_dir_all(results)?;
        let file = results.join(format!("{suite}.json"));
        std::fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("failed to write {}", file.display()))?;
        let missed: Vec<String> = self.rows.iter().filter(|row| !row.met).map(Row::missed).collect();
        if !missed.is_empty() {
            bail!("goals missed: {}", missed.join("; "));
        }
        Ok(())
    }

    fn print(&self) {
        println!(
            "{:<46} {:>14} {:>24}   {:<44} {:>8} {:>15}",
            "", "median", "lowest to highest", "against", "ratio", "goal"
        );
        for row in &self.rows {
            println!("{row}");
        }
    }
}
