//! `colocate`: which actor moves, which actors stay together, and for how long.

use elastin_control::Change;
use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, Flow, Model, Nested};
use crate::schemas::{actor, schema};

const TALK: &str = "User(a).call(Room(b).post).count > 10 => colocate(a, b);";

fn chat(policy: &str, servers: u64) -> Model {
    let schema = schema(&["User talk", "Room post"]);
    let mut model = Model::new(schema, policy, settings());
    for _ in 0..servers {
        model.add_server();
    }
    model.add_gem(GEM);
    model
}

/// A user with the given CPU use, in percent, and the given call rates to rooms.
fn user(model: &mut Model, key: u64, node: u64, percent: f64, rooms: &[(ActorId, f64)]) {
    let talking = actor("User", key);
    model.add_actor(talking.clone(), NodeId(node), ActorModel::default());
    let nested = rooms.iter().map(|(room, per_second)| Nested {
        target: room.clone(),
        method: Method::of("post"),
        cpu_ms: 0.1,
        part: per_second / 100.0,
    });
    model.flows.push(Flow {
        target: talking,
        method: Method::of("talk"),
        cpu_ms: percent / 10.0,
        net_bytes: 0.0,
        nested: nested.collect(),
        weight: 100.0,
    });
}

fn room(model: &mut Model, key: u64, node: u64) -> ActorId {
    let room = actor("Room", key);
    model.add_actor(room.clone(), NodeId(node), ActorModel::default());
    room
}

#[test]
fn the_end_that_uses_less_moves() {
    let mut model = chat(TALK, 2);
    let quiet = room(&mut model, 1, 2);
    user(&mut model, 1, 1, 20.0, &[(quiet.clone(), 50.0)]);
    model.run(4);
    assert_eq!(model.place[&quiet], NodeId(1), "{:#?}", model.story());
    assert_eq!(model.moves.len(), 1);
    assert_eq!(
        model.story(),
        ["Room/1 moved n2 → n1: rule 1 colocates it with User/1 (User(a).call(Room(b).post).count 3000.0 > 10)"]
    );
}

#[test]
fn if_both_are_pinned_neither_moves() {
    let policy = format!("{TALK} true => pin(User(u)); true => pin(Room(r));");
    let mut model = chat(&policy, 2);
    let pinned = room(&mut model, 1, 2);
    user(&mut model, 1, 1, 20.0, &[(pinned, 50.0)]);
    model.run(4);
    assert_eq!(model.moves, []);
    let (_, last) = model.records.last().expect("there is a record");
    assert_eq!(
        last.explain(&model.schema),
        "User/1 did not move away from n1: rule 1 colocates it with Room/1 \
         (User(a).call(Room(b).post).count 3000.0 > 10), but both are pinned"
    );
}

#[test]
fn of_several_pinned_partners_the_one_with_most_calls_wins() {
    let policy = format!("{TALK} true => pin(Room(r));");
    let mut model = chat(&policy, 3);
    let few = room(&mut model, 1, 1);
    let many = room(&mut model, 2, 2);
    user(&mut model, 1, 3, 20.0, &[(few, 20.0), (many.clone(), 80.0)]);
    model.run(5);
    assert_eq!(
        model.place[&actor("User", 1)],
        model.place[&many],
        "{:#?}",
        model.story()
    );
    let moves = model.moves.len();
    model.run(20);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn a_higher_priority_wins_over_a_pin() {
    let policy = format!("@priority(60) {TALK} true => pin(Room(r)); @priority(70) true => pin(User(u));");
    let mut model = chat(&policy, 2);
    let pinned = room(&mut model, 1, 2);
    user(&mut model, 1, 1, 20.0, &[(pinned.clone(), 50.0)]);
    model.run(4);
    assert_eq!(model.place[&pinned], NodeId(1), "{:#?}", model.story());
}

#[test]
fn a_colocate_is_admitted_only_within_balance_bounds() {
    let policy = format!("{TALK} server.cpu.perc > 80 => balance({{User}}, cpu);");
    let mut model = chat(&policy, 2);
    let shared = room(&mut model, 1, 1);
    user(&mut model, 1, 1, 70.0, &[(shared.clone(), 50.0)]);
    user(&mut model, 2, 2, 15.0, &[(shared, 50.0)]);
    model.run(5);
    assert_eq!(model.moves, [], "{:#?}", model.story());
    let refused = "User/2 did not move n2 → n1: rule 1 colocates it with Room/1";
    let lines: Vec<String> = model
        .records
        .iter()
        .map(|(_, decision)| decision.explain(&model.schema))
        .collect();
    let line = lines
        .iter()
        .find(|line| line.starts_with(refused))
        .expect("the refusal is recorded");
    assert!(
        line.contains("but cpu there would be at") && line.ends_with("% of at most 80 %"),
        "{line}"
    );
}

#[test]
fn a_relation_outlives_its_reason_by_three_periods() {
    let mut model = chat(TALK, 2);
    let together = room(&mut model, 1, 1);
    user(&mut model, 1, 1, 20.0, &[(together.clone(), 50.0)]);
    model.run(4);
    // They stop talking; a while later their server is drained.
    model.flows[0].nested.clear();
    model.run(2);
    model.drain(NodeId(1));
    model.run(3);
    let as_one = "User/1 with 1 more moved n1 → n2: n1 is being emptied";
    let other_way = "Room/1 with 1 more moved n1 → n2: n1 is being emptied";
    let story = model.story();
    assert!(
        story.iter().any(|line| line == as_one || line == other_way),
        "{story:#?}"
    );

    let mut model = chat(TALK, 2);
    let alone = room(&mut model, 1, 1);
    user(&mut model, 1, 1, 20.0, &[(alone, 50.0)]);
    model.run(4);
    model.flows[0].nested.clear();
    model.run(6);
    model.drain(NodeId(1));
    model.run(3);
    let story = model.story();
    assert_eq!(
        story
            .iter()
            .filter(|line| line.ends_with("n1 is being emptied"))
            .count(),
        2,
        "{story:#?}"
    );
}

#[test]
fn an_oversized_group_gives_up_its_weakest_relation() {
    let policy = format!("{TALK} server.cpu.perc > 90 => balance({{User}}, cpu);");
    let mut model = chat(&policy, 1);
    let shared = room(&mut model, 1, 1);
    // Two servers' worth of users that all talk in one room.
    for key in 0..4 {
        user(&mut model, key, 1, 40.0, &[(shared.clone(), 10.0 + 10.0 * key as f64)]);
    }
    model.run(12);
    let parted: Vec<String> = model
        .records
        .iter()
        .filter(|(_, decision)| matches!(decision.change, Change::Part { .. }))
        .map(|(_, decision)| decision.explain(&model.schema))
        .collect();
    let first = parted.first().expect("a relation is given up");
    assert!(
        first.contains("User/0"),
        "the relation with the fewest calls: {parted:#?}"
    );
    assert!(
        first.contains(
            "are no longer held together: rule 1 colocates them, and no server has room for all of their group"
        ),
        "{first}"
    );
    for node in model.servers() {
        assert!(model.cpu(node) <= 95.0, "{node}: {:#?}", model.story());
    }
    let stays_with = model.place[&shared];
    assert_eq!(
        model.place[&actor("User", 3)],
        stays_with,
        "the relation with most calls stays"
    );
}
