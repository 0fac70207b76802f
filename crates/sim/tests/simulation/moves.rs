//! A single move, with a crash of each side at each step.

use elastin_sim::{MoveScenario, Report, crash_in_a_move};

fn check(seed: u64, scenario: MoveScenario) -> Report {
    let report = crash_in_a_move(seed, scenario, false);
    if !report.violations.is_empty() {
        let report = crash_in_a_move(seed, scenario, true);
        panic!(
            "seed {seed}, {scenario:?}: {:#?}\n{}",
            report.violations,
            report.whole()
        );
    }
    report
}

#[test]
fn a_move_loses_nothing() {
    for seed in 0..20 {
        let report = check(seed, MoveScenario::NoCrash);
        assert_eq!(report.count("move done"), 1, "seed {seed}: the move must happen");
        assert_eq!(
            report.count("message"),
            report.count("message ran"),
            "seed {seed}: nothing is lost"
        );
    }
}

fn kill_at_every_step(side: impl Fn(u64) -> MoveScenario, commands: &str) {
    for seed in 0..2 {
        let quiet = check(seed, MoveScenario::NoCrash);
        let steps = quiet.count(commands);
        assert!(steps > 0, "seed {seed}: no step");
        for step in 0..steps {
            let report = check(seed, side(step));
            assert_eq!(
                report.count("crash"),
                1,
                "seed {seed}, step {step}: the crash must happen"
            );
        }
    }
}

#[test]
fn a_move_survives_a_crash_of_its_source_at_every_step() {
    kill_at_every_step(MoveScenario::Source, "source commands");
}

#[test]
fn a_move_survives_a_crash_of_its_target_at_every_step() {
    kill_at_every_step(MoveScenario::Target, "target commands");
}

#[test]
fn a_move_survives_a_crash_of_the_directory_at_every_step() {
    kill_at_every_step(MoveScenario::Directory, "directory commands");
}
