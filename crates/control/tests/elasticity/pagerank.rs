//! PageRank: partitions with different loads are balanced, and the number of servers follows the load.

use elastin_control::Settings;
use elastin_types::{Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, Flow, Model};
use crate::schemas::{actor, schema};

const POLICY: &str = "server.cpu.perc > 80 or server.cpu.perc < 60 => balance({Partition}, cpu);";

/// Partitions with the given CPU demand, in milliseconds per second, spread over the servers in turn.
fn pagerank(servers: u64, loads: &[f64]) -> Model {
    let schema = schema(&["Partition step"]);
    let mut model = Model::new(schema, POLICY, settings());
    let nodes: Vec<NodeId> = (0..servers).map(|_| model.add_server()).collect();
    model.add_gem(GEM);
    for (key, load) in (0..).zip(loads) {
        let partition = actor("Partition", key);
        let node = nodes[usize::try_from(key % servers).unwrap()];
        model.add_actor(partition.clone(), node, ActorModel::default());
        model.flows.push(Flow {
            target: partition,
            method: Method::of("step"),
            cpu_ms: 1.0,
            net_bytes: 0.0,
            nested: Vec::new(),
            weight: *load,
        });
    }
    model
}

/// Uneven loads, as of graph partitions: between half and one and a half times the mean.
fn uneven(count: u64, mean: f64) -> Vec<f64> {
    let factor = |index: u64| 0.5 + (index * 7_919 % 101) as f64 / 100.0;
    let sum: f64 = (0..count).map(factor).sum();
    (0..count)
        .map(|index| mean * count as f64 * factor(index) / sum)
        .collect()
}

fn assert_balanced(model: &Model) {
    for node in model.servers() {
        let cpu = model.cpu(node);
        assert!(cpu <= 85.0, "{node} is at {cpu:.1} %: {:#?}", model.story());
    }
}

#[test]
fn partitions_are_balanced_on_a_fixed_set_of_servers() {
    let mut loads = uneven(32, 175.0);
    // The partitions of two servers are heavier, and those of two others lighter, than the rest.
    for (index, load) in loads.iter_mut().enumerate() {
        *load *= match index % 8 {
            0 | 3 => 1.4,
            5 | 6 => 0.6,
            _ => 1.0,
        };
    }
    let mut model = pagerank(8, &loads);
    model.restrict(Settings {
        servers_min: 8,
        servers_max: 8,
        ..settings()
    });
    let over = |model: &Model| {
        model
            .servers()
            .into_iter()
            .filter(|node| model.cpu(*node) > 80.0)
            .count()
    };
    assert!(over(&model) >= 2, "the model starts unbalanced");
    model.noise = 0.02;
    model.run(10);
    assert_balanced(&model);
    let moves = model.moves.len();
    assert!((1..=12).contains(&moves), "{moves} moves: {:#?}", model.story());
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn servers_are_added_until_the_load_fits_and_no_more() {
    let mut model = pagerank(1, &uneven(32, 175.0));
    model.noise = 0.02;
    model.run(15);
    assert_balanced(&model);
    // 5.6 servers' worth of load at 80 % needs 7 servers; units do not divide evenly.
    assert!((7..=9).contains(&model.servers().len()), "{:?}", model.servers());
    let (moves, servers) = (model.moves.len(), model.servers());
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
    assert_eq!(model.servers(), servers);
    // The required capacity was known from the start; the provided capacity followed.
    let first = model
        .measured
        .iter()
        .find(|capacity| capacity.required.cpu > 1000.0)
        .expect("capacity was measured");
    let last = model.measured.last().expect("capacity was measured");
    assert!(
        (first.required.cpu / 5600.0 - 1.0).abs() < 0.05 && first.provided.cpu < 5600.0,
        "{first:?}"
    );
    assert!(
        (last.required.cpu / 5600.0 - 1.0).abs() < 0.05 && last.provided.cpu >= 7000.0,
        "{last:?}"
    );
}

#[test]
fn the_number_of_servers_follows_the_load() {
    let mut model = pagerank(1, &uneven(32, 175.0));
    model.noise = 0.02;
    model.run(15);
    let many = model.servers().len();
    for flow in &mut model.flows {
        flow.weight /= 4.0;
    }
    model.run(40);
    assert_balanced(&model);
    let few = model.servers().len();
    // A quarter of 5.6 servers' worth fits on 2 at 80 %.
    assert!(
        (2..=3).contains(&few),
        "{few} of {many} servers are left: {:#?}",
        model.story()
    );
    let moves = model.moves.len();
    model.run(30);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
    for flow in &mut model.flows {
        flow.weight *= 4.0;
    }
    model.run(25);
    assert_balanced(&model);
}

#[test]
fn the_cluster_does_not_grow_for_one_oversized_partition() {
    let mut model = pagerank(1, &[950.0]);
    model.run(12);
    assert_eq!(model.servers().len(), 1);
    let (_, last) = model.records.last().expect("there is a record");
    assert_eq!(
        last.explain(&model.schema),
        "1 server was not added: rule 1 finds the servers too busy (server.cpu.perc 95.0 > 80), \
         but more servers would not help"
    );
}

#[test]
fn oversized_partitions_get_a_server_each() {
    let mut model = pagerank(1, &[1200.0, 1100.0, 1150.0]);
    model.run(14);
    assert_eq!(model.servers().len(), 3, "{:#?}", model.story());
    for node in model.servers() {
        assert_eq!(model.on(node).len(), 1, "{:#?}", model.story());
    }
    let moves = model.moves.len();
    model.run(30);
    assert_eq!(
        (model.moves.len(), model.servers().len()),
        (moves, 3),
        "{:#?}",
        model.story()
    );
}
