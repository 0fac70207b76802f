//! `reserve` in special cases: several hot actors, no more servers, a draining server, a changed policy.

use std::sync::Arc;

use elastin_control::Settings;
use elastin_policy::compile;
use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, Flow, Model};
use crate::schemas::{actor, schema};

const POLICY: &str = "
rule hot: server.cpu.perc > 80 and client.call(Shop(s).buy).perc > 20 => reserve(s, cpu);
";

/// Shops with the given CPU demand, in percent of a server, on the given servers.
fn shops(servers: u64, loads: &[(f64, u64)]) -> Model {
    let mut model = Model::new(schema(&["Shop buy"]), POLICY, settings());
    for _ in 0..servers {
        model.add_server();
    }
    model.add_gem(GEM);
    for (key, (percent, node)) in (0..).zip(loads) {
        let shop = actor("Shop", key);
        model.add_actor(shop.clone(), NodeId(*node), ActorModel::default());
        model.flows.push(Flow {
            target: shop,
            method: Method::of("buy"),
            cpu_ms: 1.0,
            net_bytes: 0.0,
            nested: Vec::new(),
            weight: percent * 10.0,
        });
    }
    model
}

fn shop(key: u64) -> ActorId {
    actor("Shop", key)
}

#[test]
fn each_reserved_actor_has_its_own_server() {
    let mut model = shops(1, &[(40.0, 1), (35.0, 1), (10.0, 1), (8.0, 1)]);
    model.run(12);
    let (first, second) = (model.place[&shop(0)], model.place[&shop(1)]);
    assert_ne!(first, second, "{:#?}", model.story());
    assert_eq!(model.on(first).len(), 1);
    // The heaviest shop left first; then the others' server was below the bound again, or the second was reserved, too.
    let moves = model.moves.len();
    model.run(30);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn the_server_that_is_cheapest_to_empty_is_emptied() {
    // Both servers are in use; the second has one light shop, which the first can take once the hot one has left.
    let mut model = shops(2, &[(60.0, 1), (15.0, 1), (10.0, 1), (8.0, 1), (12.0, 2)]);
    model.restrict(Settings {
        servers_max: 2,
        ..settings()
    });
    model.run(8);
    let node = model.place[&shop(0)];
    assert_eq!(model.on(node).len(), 1, "{:#?}", model.story());
    assert_eq!(node, NodeId(2));
    let made_room = "Shop/4 moved n2 → n1: rule hot reserves n2 for Shop/0";
    assert!(model.story()[0].starts_with(made_room), "{:#?}", model.story());
}

#[test]
fn at_the_maximum_of_servers_reserved_actors_share() {
    let mut model = shops(3, &[(60.0, 1), (28.0, 1), (2.0, 1), (2.0, 1)]);
    model.restrict(Settings {
        servers_max: 3,
        ..settings()
    });
    model.run(6);
    let mut reserved: Vec<ActorId> = model.reserved().into_iter().map(|(_, actor)| actor).collect();
    reserved.sort();
    assert_eq!(reserved, [shop(0), shop(1)], "{:#?}", model.story());
    // Two more become hot, and no server is left for either.
    model.flows[2].weight = 500.0;
    model.flows[3].weight = 400.0;
    model.run(8);
    assert_eq!(model.place[&shop(2)], model.place[&shop(1)], "{:#?}", model.story());
    assert_ne!(
        model.place[&shop(0)],
        model.place[&shop(1)],
        "the actor with most use is alone"
    );
    let moves = model.moves.len();
    model.run(30);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn a_reservation_survives_the_drain_of_its_server() {
    let mut model = shops(1, &[(60.0, 1), (17.0, 1), (15.0, 1)]);
    model.run(6);
    let node = model.place[&shop(0)];
    assert_eq!(model.on(node).len(), 1, "{:#?}", model.story());
    let spare = model.add_server();
    model.run(2);
    model.drain(node);
    model.run(6);
    assert_eq!(model.place[&shop(0)], spare, "{:#?}", model.story());
    assert!(!model.servers().contains(&node), "the emptied server has left");
    assert_eq!(model.reserved(), [(spare, shop(0))]);
    let drained = format!("Shop/0 moved {node} → {spare}: {node} is being emptied");
    assert!(model.story().contains(&drained), "{:#?}", model.story());
}

#[test]
fn the_cluster_does_not_grow_for_an_actor_too_large_for_memory() {
    let mut model = shops(1, &[(60.0, 1), (17.0, 1), (15.0, 1)]);
    let huge = ActorModel {
        references: Vec::new(),
        state_bytes: 1e12,
    };
    model.add_actor(shop(0), NodeId(1), huge);
    model.run(30);
    assert_eq!(model.place[&shop(0)], NodeId(1));
    assert!(model.servers().len() <= 2, "{:#?}", model.story());
}

#[test]
fn a_policy_change_ends_old_reservations() {
    let mut model = shops(1, &[(60.0, 1), (17.0, 1), (15.0, 1)]);
    model.run(6);
    assert_eq!(model.reserved().len(), 1);
    let source = "server.cpu.perc > 95 or server.cpu.perc < 60 => balance({Shop}, cpu);";
    let compiled = compile("new.epl", source, &model.schema).expect("the policy compiles");
    model.change_policy(Arc::new(compiled.policy));
    model.run(12);
    assert_eq!(model.reserved(), []);
    assert_eq!(
        model.servers(),
        [NodeId(1)],
        "the second server is not needed: {:#?}",
        model.story()
    );
}
