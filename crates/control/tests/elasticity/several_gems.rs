//! Several global managers: servers report to a random one in each period, and the number of servers is voted on.

use elastin_control::{ControlMessage, Settings};
use elastin_types::{Method, NodeId};

use crate::metadata::{GEM, group, metadata, settings};
use crate::model::{ActorModel, Flow, Model};
use crate::schemas::{actor, schema};

const BALANCE: &str = "server.cpu.perc > 80 or server.cpu.perc < 60 => balance({Worker}, cpu);";
const GEMS: [NodeId; 4] = [NodeId(1000), NodeId(1001), NodeId(1002), NodeId(1003)];

/// Workers of 50 ms CPU per second each, on servers in turn.
fn workers(servers: u64, count: u64) -> Model {
    let mut model = Model::new(schema(&["Worker run"]), BALANCE, settings());
    let nodes: Vec<NodeId> = (0..servers).map(|_| model.add_server()).collect();
    for gem in GEMS {
        model.add_gem(gem);
    }
    for key in 0..count {
        let worker = actor("Worker", key);
        let node = nodes[usize::try_from(key % servers).unwrap()];
        model.add_actor(worker.clone(), node, ActorModel::default());
        model.flows.push(Flow {
            target: worker,
            method: Method::of("run"),
            cpu_ms: 1.0,
            net_bytes: 0.0,
            nested: Vec::new(),
            weight: 50.0,
        });
    }
    model
}

#[test]
fn the_hot_folder_gets_its_server_with_any_gem() {
    let mut model = metadata();
    for gem in &GEMS[1..] {
        model.add_gem(*gem);
    }
    assert_eq!(GEM, GEMS[0]);
    model.run(25);
    let node = model.place[&actor("Folder", 0)];
    assert_eq!(model.on(node), group(0), "{:#?}", model.story());
    let moves = model.moves.len();
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn an_overloaded_cluster_grows_by_a_vote() {
    // Four servers at 100 % each.
    let mut model = workers(4, 80);
    model.run(40);
    for node in model.servers() {
        assert!(model.cpu(node) <= 85.0, "{node}: {:#?}", model.story());
    }
    let servers = model.servers().len();
    assert!((5..=8).contains(&servers), "{servers} servers: {:#?}", model.story());
    model.run(20);
    let moves = model.moves.len();
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn managers_with_idle_servers_vote_down_growth() {
    let mut model = workers(8, 100);
    // Two servers are full of actors that cannot move; most others are about half full.
    model.restrict(Settings {
        servers_min: 8,
        ..settings()
    });
    for flow in model
        .flows
        .iter_mut()
        .filter(|flow| model.place[&flow.target] == NodeId(1))
    {
        flow.weight *= 4.0;
    }
    model.faults.loses = Box::new(|_, message| matches!(message, ControlMessage::Query(_)));
    model.run(30);
    assert_eq!(model.moves, [], "no query arrives, so nothing moves");
    let voted_down = |line: &String| line.contains("managers agreed");
    let lines: Vec<String> = model
        .decisions
        .values()
        .map(|decision| decision.explain(&model.schema))
        .collect();
    assert!(lines.iter().any(voted_down), "{lines:#?}");
}
