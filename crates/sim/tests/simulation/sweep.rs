//! Many random worlds, each with its own faults.

use std::collections::BTreeMap;

use elastin_sim::{Report, options_of_seed, run, run_traced};

/// Runs a seed; a failure names the command that replays it.
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

/// The number of worlds that every change is tested with.
const SEEDS: u64 = 500;

#[test]
fn every_invariant_holds_in_every_world() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        for (name, times) in check(seed).counters {
            *met.entry(name).or_insert(0) += times;
        }
    }
    // A sweep without these events would prove little.
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
        "frame duplicated",
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
        "request retried",
        "server left",
        "slow store",
        "store failed",
        "suspicion",
        "watch restarted",
    ];
    let never: Vec<&str> = expected.into_iter().filter(|name| !met.contains_key(name)).collect();
    assert!(never.is_empty(), "{never:?} never happened: {met:#?}");
}

#[test]
fn the_same_seed_replays_the_same_run() {
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
        "the hash must depend on the seed"
    );
}
