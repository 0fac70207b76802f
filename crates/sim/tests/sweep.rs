//! Many random worlds, each with its own faults.

use std::collections::BTreeMap;

use elastin_sim::{Report, options_of_seed, run, run_traced};

/// Runs a seed; a failure says how to see it again.
fn check(seed: u64) -> Report {
    let options = options_of_seed(seed);
    let report = run(seed, &options);
    if !report.violations.is_empty() {
        let last = run_traced(seed, &options).around(&report.violations[0], 60);
        panic!(
            "seed {seed}: {:#?}\n{last}\nsee it whole: cargo run --release -p elastin-sim --example sweep -- {seed} 1",
            report.violations
        );
    }
    report
}

#[test]
fn every_promise_holds_in_every_world() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..40 {
        for (what, times) in check(seed).counters {
            *met.entry(what).or_insert(0) += times;
        }
    }
    // A sweep that never meets these shows nothing.
    for what in [
        "activation",
        "arrival",
        "bounce",
        "call answered",
        "call unknown",
        "crash",
        "cut",
        "direct send",
        "link break",
        "move done",
        "move failed",
        "passivation",
        "queue moved",
    ] {
        assert!(
            met.get(what).is_some_and(|times| *times > 0),
            "`{what}` was never met: {met:#?}"
        );
    }
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in [3, 14, 52] {
        let options = options_of_seed(seed);
        let (one, other) = (run(seed, &options), run(seed, &options));
        assert_eq!(
            (one.log_hash, one.events),
            (other.log_hash, other.events),
            "seed {seed}"
        );
        assert_eq!(one.counters, other.counters, "seed {seed}");
    }
    let options = options_of_seed(3);
    assert_ne!(
        run(3, &options).log_hash,
        run(4, &options).log_hash,
        "the hash says nothing"
    );
}
