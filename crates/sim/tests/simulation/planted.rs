//! The simulator finds bugs: each bug planted into the protocol causes a violation within some seeds.

use elastin_protocol::Bug;
use elastin_sim::{options_of_seed, run};

/// The number of seeds within which each bug must be found.
const SEEDS_MAX: u64 = 10_000;

/// A seed that has found the bug before and is tried first, to keep the test fast. If it no longer does, because the
/// protocol or a world changed, all others are tried.
fn first_seed(bug: Bug) -> u64 {
    match bug {
        Bug::OpenSlotTooEarly => 27,
        Bug::GoSilently => 50,
        Bug::RunRefused => 40,
        Bug::RunPastLease => 47,
        Bug::DenyLost => 49,
        Bug::SavePastLease => 2575,
        Bug::SkipHold => 69,
        Bug::AnswerBeforeSave => 75,
        Bug::AcceptTooEarly => 80,
        Bug::HoldFromRecord => 106,
        Bug::PublishBlindly => 110,
        Bug::OpenTooEarly => 114,
        Bug::ResumeUndecided => 136,
        Bug::ResendLostMail => 158,
        Bug::KeepSilently => 179,
        Bug::CountLeaseFromAnswer => 516,
        _ => 0,
    }
}

fn is_detected(bug: Bug, seed: u64) -> bool {
    let mut options = options_of_seed(seed);
    options.bug = Some(bug);
    // A bug may also be caught by an assertion of the protocol or of the model of the runtime.
    let caught = std::panic::catch_unwind(|| !run(seed, &options).violations.is_empty());
    caught.unwrap_or(true)
}

#[test]
fn every_planted_bug_is_found() {
    let is_found = |bug: &Bug| {
        let mut seeds = std::iter::once(first_seed(*bug)).chain(0..SEEDS_MAX);
        seeds.any(|seed| is_detected(*bug, seed))
    };
    let missed: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| !is_found(bug)).collect();
    assert!(missed.is_empty(), "not found within {SEEDS_MAX} seeds: {missed:?}");
}
