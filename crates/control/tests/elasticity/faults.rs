//! Faults: lost messages, a dead global manager, a dead target. Each costs some periods, and none blocks progress.

use std::time::Duration;

use elastin_types::NodeId;

use crate::metadata::{GEM, group, metadata};
use crate::model::Model;

/// The end of the moves in an undisturbed run, in milliseconds.
fn moves_end_ms() -> u64 {
    let mut model = metadata();
    model.run(6);
    model.moves[0].0.0 / 1_000_000
}

/// Asserts that the hot folder and its files are together on a dedicated server.
fn assert_settled(model: &mut Model, context: &str) {
    let node = model.place[group(0).last().expect("a group has actors")];
    assert_eq!(model.on(node), group(0), "{context}: {:#?}", model.story());
    let moves = model.moves.len();
    model.run(10);
    assert_eq!(
        model.moves.len(),
        moves,
        "{context}: actors keep moving: {:#?}",
        model.story()
    );
}

#[test]
fn any_one_message_may_be_lost() {
    for lost in 1..45 {
        let mut model = metadata();
        model.faults.loses = Box::new(move |sent, _| sent == lost);
        model.run(12);
        assert_settled(&mut model, &format!("message {lost} lost"));
    }
}

#[test]
fn a_third_of_all_messages_may_be_lost() {
    for seed in 1..9_u64 {
        let mut model = metadata();
        model.faults.loses = Box::new(move |sent, _| (sent * 2_654_435_761 + seed * 40_503) % 97 < 32);
        model.run(60);
        model.faults.loses = Box::new(|_, _| false);
        model.run(12);
        assert_settled(&mut model, &format!("seed {seed}"));
    }
}

#[test]
fn the_global_manager_may_die_at_any_step() {
    // Around the request for a server, its arrival, and the moves.
    let moved = moves_end_ms();
    let coarse = (moved - 12_000..moved + 2_000).step_by(1_000);
    for at_ms in coarse.chain((moved - 48..moved + 12).step_by(4)) {
        let mut model = metadata();
        model.run_for(Duration::from_millis(at_ms));
        model.kill_gem(GEM);
        model.run(2);
        model.add_gem(NodeId(2000));
        model.run(14);
        assert_settled(&mut model, &format!("died after {at_ms} ms"));
        assert!(model.servers().len() <= 3, "at most one server was requested twice");
    }
}

#[test]
fn any_one_move_may_fail() {
    for failing in 1..=9 {
        let mut model = metadata();
        model.faults.fails_move = Box::new(move |tried| tried == failing);
        model.run(8);
        assert_settled(&mut model, &format!("move {failing} failed"));
        let failed = "with 8 more failed to move n1 → n2";
        let why = "but 1 of 9 did not move: n2 did not take it";
        let reported = |line: &&String| line.contains(failed) && line.ends_with(why);
        assert_eq!(model.story().iter().filter(reported).count(), 1, "{:#?}", model.story());
    }
}

#[test]
fn every_second_move_may_fail() {
    let mut model = metadata();
    model.faults.fails_move = Box::new(|tried| tried % 2 == 1);
    model.run(20);
    assert_settled(&mut model, "every second move failed");
}

#[test]
fn the_target_may_die_at_any_step() {
    let moved = moves_end_ms();
    let coarse = (moved - 6_000..moved + 2_000).step_by(800);
    for at_ms in coarse.chain((moved - 48..moved + 12).step_by(4)) {
        let mut model = metadata();
        model.run_for(Duration::from_millis(at_ms));
        let target = NodeId(2);
        if model.servers().contains(&target) {
            model.kill(target);
        }
        model.run(20);
        assert_settled(&mut model, &format!("died after {at_ms} ms"));
    }
}

#[test]
fn a_failed_provisioning_is_retried() {
    let mut model = metadata();
    model.faults.no_servers = true;
    model.run(8);
    assert_eq!(model.servers().len(), 1);
    assert!(
        model
            .story()
            .iter()
            .any(|line| line.ends_with("but the provisioner has no servers")),
        "{:#?}",
        model.story()
    );
    model.faults.no_servers = false;
    model.run(8);
    assert_settled(&mut model, "after the provisioner recovered");
}
