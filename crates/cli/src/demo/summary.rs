//! The summary at the end of the demo.

use std::time::Duration;

use metadata_server::percentile;

use super::experiment::Finding;
use super::view::millis;

/// The least reduction of the median latency by the policy: that of figure 5 of the PLASMA paper.
const GAIN_PERCENT_MIN: f64 = 40.0;

/// Prints both runs side by side, and the decisions.
#[allow(clippy::print_stdout)] // The summary is the command's output.
pub(crate) fn print(without: &Finding, with: &Finding) {
    println!();
    println!("                         without policy     with policy");
    row("p50 at the end", without, with, |finding| {
        millis(percentile(&finding.latencies, 50.0))
    });
    row("p99 at the end", without, with, |finding| {
        millis(percentile(&finding.latencies, 99.0))
    });
    row("servers at the end", without, with, |finding| {
        finding.servers.to_string()
    });
    row("calls made", without, with, |finding| finding.calls.to_string());
    row("calls failed", without, with, |finding| finding.failed.to_string());
    row("requests out of order", without, with, |finding| {
        finding.audit.out_of_order.to_string()
    });
    row("actors moved", without, with, |finding| {
        finding.actors_moved.to_string()
    });
    println!();
    if !with.done.is_empty() {
        println!("Decisions of the policy:");
        for line in &with.done {
            println!("  {line}");
        }
        println!();
    }
    if let Some(gain) = gain_percent(without, with) {
        println!("The policy lowered the median latency by {gain:.0} % (the paper's figure 5: 40 %).");
    }
}

#[allow(clippy::print_stdout)] // The summary is the command's output.
fn row(name: &str, without: &Finding, with: &Finding, value: impl Fn(&Finding) -> String) {
    println!("  {name:<22} {:>14}  {:>14}", value(without), value(with));
}

/// Fails if the policy gained too little.
pub(crate) fn check(without: &Finding, with: &Finding) -> anyhow::Result<()> {
    for (name, finding) in [("without", without), ("with", with)] {
        if finding.failed > 0 {
            let first = finding.first_error.as_deref().unwrap_or("unknown");
            anyhow::bail!(
                "{} calls failed {name} the policy; the first error: {first}",
                finding.failed
            );
        }
        if finding.audit.out_of_order > 0 {
            anyhow::bail!(
                "{} requests overtook others {name} the policy",
                finding.audit.out_of_order
            );
        }
        if finding.audit.opened != finding.calls {
            anyhow::bail!(
                "{} calls were made but {} ran {name} the policy",
                finding.calls,
                finding.audit.opened
            );
        }
    }
    let gain = gain_percent(without, with).ok_or_else(|| anyhow::anyhow!("no call was measured"))?;
    if gain < GAIN_PERCENT_MIN {
        anyhow::bail!(
            "the policy lowered the median latency by {gain:.0} % only, not by {GAIN_PERCENT_MIN} %: \
             is the machine busy with something else?"
        );
    }
    Ok(())
}

fn gain_percent(without: &Finding, with: &Finding) -> Option<f64> {
    let median = |finding: &Finding| percentile(&finding.latencies, 50.0).as_ref().map(Duration::as_secs_f64);
    let (before, after) = (median(without)?, median(with)?);
    Some(100.0 * (before - after) / before)
}
