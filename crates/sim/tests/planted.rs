//! The simulator finds bugs: each one planted into the protocol shows within some seeds.

use elastin_protocol::Bug;
use elastin_sim::{options_of_seed, run};

/// Within this many seeds each bug must show.
const SEEDS_MAX: u64 = 10_000;

/// A seed that is tried first because it found the bug before, so that the test is quick. If it no longer does, because
/// the protocol or a world changed, all others are tried.
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

fn shows(bug: Bug, seed: u64) -> bool {
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
        seeds.any(|seed| shows(*bug, seed))
    };
    let missed: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| !is_found(bug)).collect();
    assert!(missed.is_empty(), "not found within {SEEDS_MAX} seeds: {missed:?}");
}
