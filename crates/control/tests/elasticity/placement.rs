//! Placement of new actors, with a global manager and without one.

use std::collections::BTreeSet;
use std::time::Duration;

use elastin_control::{ControlMessage, Lem, LemCommand, LemEvent, NewActor, PlaceReason, Placement};
use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, group, metadata, settings};
use crate::model::{ActorModel, Flow, Model};
use crate::schemas::{actor, schema};

const POLICY: &str = "
server.cpu.perc > 50 => reserve(Video(v), cpu);
server.cpu.perc > 90 => balance({Checker}, cpu);
true => pin(Store(s));
Video(v).call(User(u).track).count > 0 => colocate(v, u);
";

/// Three servers with the given CPU use, in percent, by actors that no rule mentions.
fn servers(loads: [f64; 3]) -> Model {
    let schema = schema(&["Video watch", "User track", "Checker check", "Store get", "Other run"]);
    let mut model = Model::new(schema, POLICY, settings());
    model.add_gem(GEM);
    for (key, load) in (0..).zip(loads) {
        let node = model.add_server();
        if load > 0.0 {
            run(&mut model, actor("Other", key), node, load);
        }
    }
    model
}

fn run(model: &mut Model, target: ActorId, node: NodeId, percent: f64) {
    model.add_actor(target.clone(), node, ActorModel::default());
    model.flows.push(Flow {
        target,
        method: Method::of("run"),
        cpu_ms: 1.0,
        net_bytes: 0.0,
        nested: Vec::new(),
        weight: percent * 10.0,
    });
}

#[test]
fn a_burst_of_a_balanced_type_spreads_to_the_servers_with_room() {
    let mut model = servers([40.0, 20.0, 30.0]);
    model.run(3);
    assert_eq!(
        model.create(actor("Checker", 0), None, ActorModel::default()),
        NodeId(2)
    );
    let burst: Vec<NodeId> = (1..40)
        .map(|key| model.create(actor("Checker", key), None, ActorModel::default()))
        .collect();
    for node in 1..=3 {
        assert!(burst.contains(&NodeId(node)), "{burst:?}");
    }
}

#[test]
fn a_pinned_type_goes_to_servers_with_pinned_actors() {
    let mut model = servers([40.0, 20.0, 30.0]);
    run(&mut model, actor("Store", 0), NodeId(3), 5.0);
    model.run(3);
    for key in 1..6 {
        assert_eq!(
            model.create(actor("Store", key), None, ActorModel::default()),
            NodeId(3)
        );
    }
}

#[test]
fn a_type_about_to_be_reserved_goes_to_an_empty_server() {
    let mut model = servers([60.0, 0.0, 70.0]);
    model.run(3);
    assert_eq!(model.create(actor("Video", 0), None, ActorModel::default()), NodeId(2));
}

#[test]
fn a_colocated_actor_is_placed_beside_its_caller() {
    let mut model = servers([10.0, 20.0, 30.0]);
    run(&mut model, actor("Video", 7), NodeId(3), 5.0);
    model.run(3);
    let caller = actor("Video", 7);
    for key in 0..10 {
        let node = model.create(actor("User", key), Some(&caller), ActorModel::default());
        assert_eq!(node, NodeId(3));
    }
}

#[test]
fn without_a_rule_any_server_but_a_reserved_one_is_chosen() {
    let mut model = metadata();
    model.add_server();
    model.run(6);
    let reserved = model.place[&actor("Folder", 0)];
    assert_eq!(model.on(reserved), group(0));
    for key in 100..140 {
        let node = model.create(actor("File", key), None, ActorModel::default());
        assert_ne!(node, reserved);
    }
    let beside = model.create(actor("File", 200), Some(&actor("Folder", 0)), ActorModel::default());
    assert_eq!(beside, reserved, "a companion is admitted");
}

#[test]
fn a_node_without_a_global_manager_places_by_the_same_rules() {
    let mut model = servers([40.0, 20.0, 30.0]);
    model.run(3);
    let new = |key| NewActor {
        actor: actor("Checker", key),
        caller: None,
        caller_node: None,
    };
    // The node knows the other servers from the global manager's last reply, and itself.
    let lem: &mut Lem = model.lem(NodeId(1));
    let placement = lem.place(&new(1)).expect("servers are known");
    assert_eq!(placement.node, NodeId(2));
    assert!(matches!(placement.reason, PlaceReason::Balanced(1)));
}

#[test]
fn placement_falls_back_when_the_global_manager_times_out() {
    let mut model = servers([40.0, 20.0, 30.0]);
    model.run(3);
    let now = model.now;
    let lem = model.lem(NodeId(1));
    let mut out = Vec::new();
    let place = |request| LemEvent::Place {
        request,
        new: NewActor {
            actor: actor("Checker", request),
            caller: None,
            caller_node: None,
        },
    };
    lem.handle(now, place(5), &mut out);
    let [LemCommand::Send { to: GEM, message }] = &out[..] else {
        panic!("expected a request to the global manager: {out:?}");
    };
    assert!(matches!(message, ControlMessage::Place { .. }));
    out.clear();
    let due = lem.next_timer().expect("the request has a timeout");
    assert!(due.since(now) <= Duration::from_secs(1));
    lem.handle(due, LemEvent::Tick, &mut out);
    let placed: Vec<&LemCommand> = out
        .iter()
        .filter(|command| matches!(command, LemCommand::Placed { .. }))
        .collect();
    let [
        LemCommand::Placed {
            request: 5,
            placement: Some(Placement { node, .. }),
        },
    ] = placed[..]
    else {
        panic!("expected a local placement: {out:?}");
    };
    let known: BTreeSet<NodeId> = (1..=3).map(NodeId).collect();
    assert!(known.contains(node));
}
