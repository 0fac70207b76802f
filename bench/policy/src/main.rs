//! The speed of checking and evaluating policies, as ratios within the same run.
//!
//! `cargo xtask bench policy` prints the table and writes `target/bench/policy.json`.

mod by_hand;
mod clock;
mod many_rules;
mod media_service;

use anyhow::{Result, ensure};
use bench_table::{Goal, Row, Samples, Table};
use elastin_policy::{Index, Policy, Scope};
use elastin_types::Snapshot;

use clock::timed;
use many_rules::ManyRules;

/// The number of measurements of each subject, alternating so that a disturbance affects all of them.
const ROUNDS: usize = 7;
const ACTORS_FEW: u64 = 100_000;
const ACTORS_MANY: u64 = 400_000;
/// The number of rules checked per round and policy, in as many repetitions as needed: the clock may be coarse.
const RULES_CHECKED: usize = 10_000;
const RULES_FEW: usize = 100;
const RULES_MANY: usize = 1_000;

fn main() -> Result<()> {
    let policy = media_service::policy();
    let few = media_service::snapshot(ACTORS_FEW);
    let many = media_service::snapshot(ACTORS_MANY);
    let index = Index::new(&few);
    let same = policy.evaluate(&index, Scope::Whole) == by_hand::evaluate(&policy, &index);
    ensure!(same, "the rules and the hand-written loop must agree");
    drop(index);
    let (rules_few, rules_many) = (ManyRules::new(RULES_FEW, 20), ManyRules::new(RULES_MANY, 200));

    let mut evaluated = Samples::default();
    let mut looped = Samples::default();
    let mut each_of_few = Samples::default();
    let mut each_of_many = Samples::default();
    let mut checked_few = Samples::default();
    let mut checked_many = Samples::default();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        let seconds = evaluate(&policy, &few);
        evaluated.add(seconds * 1e3);
        each_of_few.add(seconds * 1e9 / ACTORS_FEW as f64);
        looped.add(timed(|| by_hand::evaluate(&policy, &Index::new(&few))).as_secs_f64() * 1e3);
        each_of_many.add(evaluate(&policy, &many) * 1e9 / ACTORS_MANY as f64);
        checked_few.add(check(&rules_few, RULES_FEW) * 1e3);
        checked_many.add(check(&rules_many, RULES_MANY) * 1e3);
    }
    let rows = vec![
        Row::new("six rules, 100,000 actors", "ms", &evaluated, "a loop by hand", &looped).goal(Goal::AtMost(3.0)),
        Row::new("per actor of 400,000", "ns", &each_of_many, "of 100,000", &each_of_few).goal(Goal::AtMost(1.3)),
        Row::new(
            "checking 1,000 rules over 200 types",
            "ms",
            &checked_many,
            "100 rules over 20 types",
            &checked_few,
        )
        .goal(Goal::AtMost(15.0)),
    ];
    Table { rows }.finish("policy")
}

/// The seconds taken by an evaluation, including building the index.
fn evaluate(policy: &Policy, snapshot: &Snapshot) -> f64 {
    timed(|| policy.evaluate(&Index::new(snapshot), Scope::Whole)).as_secs_f64()
}

/// The seconds taken by checking a policy of this many rules.
fn check(policy: &ManyRules, rules: usize) -> f64 {
    let repetitions = RULES_CHECKED / rules;
    let all = timed(|| (0..repetitions).for_each(|_| policy.check()));
    all.as_secs_f64() / repetitions as f64
}
