//! The simulator finds bugs: each one planted into the protocol shows within some seeds.

use elastin_protocol::Bug;
use elastin_sim::{options_of_seed, run};

/// Within this many seeds each bug must show.
const SEEDS_MAX: u64 = 400;

/// Seeds that are tried first because they found something before, so that the test is quick; all others follow.
const FIRST_SEEDS: [u64; 9] = [0, 1, 5, 8, 11, 52, 68, 180, 264];

fn finds(bug: Bug) -> Option<u64> {
    FIRST_SEEDS.into_iter().chain(0..SEEDS_MAX).find(|seed| {
        let mut options = options_of_seed(*seed);
        options.bug = Some(bug);
        // A bug may also be caught by an assertion of the protocol or of the model of the runtime.
        let caught = std::panic::catch_unwind(|| !run(*seed, &options).violations.is_empty());
        caught.unwrap_or(true)
    })
}

#[test]
fn every_planted_bug_is_found() {
    let missed: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| finds(*bug).is_none()).collect();
    assert!(missed.is_empty(), "not found within {SEEDS_MAX} seeds: {missed:?}");
}
