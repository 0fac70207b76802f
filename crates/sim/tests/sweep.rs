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
            "seed {seed}: {:#?}\n{last}\nsee it whole: elastin sim protocol --seed {seed} --trace",
            report.violations
        );
    }
    report
}

/// How many worlds are tried with every change.
const SEEDS: u64 = 500;

#[test]
fn every_promise_holds_in_every_world() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        for (what, times) in check(seed).counters {
            *met.entry(what).or_insert(0) += times;
        }
    }
    // A sweep that never meets these shows nothing.
    let expected = [
        "activation",
        "answer late",
        "answer lost",
        "arrival",
        "bounce",
        "call answered",
        "call late",
        "call not delivered",
        "call overloaded",
        "call unknown",
        "claim failed",
        "clock jump",
        "coordination leader change",
        "coordination outage",
        "crash",
        "cut",
        "cut off from coordination",
        "direct send",
        "effect not saved",
        "frame doubled",
        "group",
        "join failed",
        "link break",
        "mailbox full",
        "move done",
        "move failed",
        "move undone",
        "node evicted",
        "node unfenced",
        "not frozen in time",
        "partition",
        "passivation",
        "pause",
        "pause longer than a lease",
        "queue moved",
        "request late",
        "request",
        "request answered later",
        "request lost",
        "request made again",
        "server left",
        "slow store",
        "store failed",
        "suspicion",
        "watch began anew",
    ];
    let never: Vec<&str> = expected.into_iter().filter(|what| !met.contains_key(what)).collect();
    assert!(never.is_empty(), "{never:?} were never met: {met:#?}");
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
