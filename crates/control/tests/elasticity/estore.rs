//! E-Store: hot root partitions get dedicated servers, and children stay with their parents.

use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, Flow, Model, Nested};
use crate::schemas::{actor, references, schema};

const POLICY: &str = "
server.cpu.perc > 80 and client.call(Partition(p1).read).perc > 30 => reserve(p1, cpu);
Partition(p2) in ref(Partition(p1).children) => colocate(p1, p2);
server.cpu.perc < 50 => balance({Partition}, cpu);
";

fn children(root: u64) -> Vec<ActorId> {
    (0..4)
        .map(|child| actor("Partition", 1000 + root * 4 + child))
        .collect()
}

/// Forty root partitions with four children each on four servers in turn. The first gets 35 % of the requests, the next
/// 35 % of the rest, and so on.
fn estore(requests: f64) -> Model {
    let schema = schema(&["Partition read : children Partition"]);
    let mut model = Model::new(schema, POLICY, settings());
    let nodes: Vec<NodeId> = (0..4).map(|_| model.add_server()).collect();
    model.add_gem(GEM);
    let mut left = requests;
    for root in 0..40 {
        let node = nodes[usize::try_from(root % 4).unwrap()];
        let own = actor("Partition", root);
        for child in children(root) {
            model.add_actor(child, node, ActorModel::default());
        }
        let references = references("children", children(root));
        model.add_actor(
            own.clone(),
            node,
            ActorModel {
                references,
                state_bytes: 1e6,
            },
        );
        let nested = children(root).into_iter().map(|target| Nested {
            target,
            method: Method::of("read"),
            cpu_ms: 1.0,
            part: 0.25,
        });
        model.flows.push(Flow {
            target: own,
            method: Method::of("read"),
            cpu_ms: 1.0,
            net_bytes: 0.0,
            nested: nested.collect(),
            weight: 0.35 * left,
        });
        left *= 0.65;
    }
    model
}

#[test]
fn hot_roots_are_alone_and_children_stay_with_their_parents() {
    let mut model = estore(1300.0);
    let before = model.cpu(NodeId(1));
    assert!(before > 99.0, "the hottest root's server is overloaded");
    model.run(12);
    let hot = model.place[&actor("Partition", 0)];
    let mut family: Vec<ActorId> = children(0);
    family.insert(0, actor("Partition", 0));
    assert_eq!(
        model.on(hot).into_iter().collect::<Vec<_>>(),
        family,
        "{:#?}",
        model.story()
    );
    for root in 0..40 {
        let node = model.place[&actor("Partition", root)];
        for child in children(root) {
            assert_eq!(model.place[&child], node, "a child of {root} is on another server");
        }
    }
    let (moves, servers) = (model.moves.len(), model.servers());
    model.noise = 0.03;
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
    assert_eq!(model.servers(), servers);
}

#[test]
fn a_child_created_on_another_server_joins_its_parent() {
    let mut model = estore(300.0);
    let child = children(7)[2].clone();
    model.place.insert(child.clone(), NodeId(1));
    assert_ne!(model.place[&actor("Partition", 7)], NodeId(1));
    model.run(4);
    assert_eq!(
        model.place[&child],
        model.place[&actor("Partition", 7)],
        "{:#?}",
        model.story()
    );
}
