//! `separate`: respected at placement, restored by moves, and never broken by them.

use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, Flow, Model};
use crate::schemas::{actor, references, schema};

const PAIRS: &str = "Replica(b) in ref(Replica(a).copies) => separate(a, b);";
const TYPES: &str = "true => separate(Reader(r), Writer(w));";

fn model(policy: &str, servers: u64) -> Model {
    let schema = schema(&["Replica get : copies Replica", "Reader get", "Writer get"]);
    let mut model = Model::new(schema, policy, settings());
    for _ in 0..servers {
        model.add_server();
    }
    model.add_gem(GEM);
    model
}

fn serve(model: &mut Model, actor: ActorId) {
    model.flows.push(Flow {
        target: actor,
        method: Method::of("get"),
        cpu_ms: 1.0,
        net_bytes: 0.0,
        nested: Vec::new(),
        weight: 100.0,
    });
}

#[test]
fn replicas_are_separated_when_there_is_a_server() {
    let mut model = model(PAIRS, 3);
    for key in 0..3 {
        let others = (0..3)
            .filter(|other| *other != key)
            .map(|other| actor("Replica", other));
        let replica = ActorModel {
            references: references("copies", others.collect()),
            state_bytes: 0.0,
        };
        model.add_actor(actor("Replica", key), NodeId(1), replica);
        serve(&mut model, actor("Replica", key));
    }
    model.run(8);
    for node in 1..=3 {
        assert_eq!(model.on(NodeId(node)).len(), 1, "{:#?}", model.story());
    }
    let moves = model.moves.len();
    model.run(20);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}

#[test]
fn on_a_single_server_the_refusal_is_recorded() {
    let mut model = model(PAIRS, 1);
    for key in 0..2 {
        let replica = ActorModel {
            references: references("copies", vec![actor("Replica", 1 - key)]),
            state_bytes: 0.0,
        };
        model.add_actor(actor("Replica", key), NodeId(1), replica);
    }
    model.run(4);
    assert_eq!(model.moves, []);
    let (_, last) = model.records.last().expect("there is a record");
    assert_eq!(
        last.explain(&model.schema),
        "Replica/0 did not move away from n1: rule 1 separates it from Replica/1, but no server can take it"
    );
}

#[test]
fn two_types_are_separated_and_new_actors_stay_apart() {
    let mut model = model(TYPES, 2);
    for key in 0..4 {
        model.add_actor(actor("Reader", key), NodeId(1), ActorModel::default());
        serve(&mut model, actor("Reader", key));
    }
    model.add_actor(actor("Writer", 0), NodeId(1), ActorModel::default());
    serve(&mut model, actor("Writer", 0));
    model.run(4);
    assert_eq!(model.place[&actor("Writer", 0)], NodeId(2), "{:#?}", model.story());
    for key in 1..10 {
        assert_eq!(
            model.create(actor("Writer", key), None, ActorModel::default()),
            NodeId(2)
        );
        assert_eq!(
            model.create(actor("Reader", 10 + key), None, ActorModel::default()),
            NodeId(1)
        );
    }
    let moves = model.moves.len();
    model.run(10);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}
