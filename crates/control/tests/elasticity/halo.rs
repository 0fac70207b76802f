//! Halo Presence Service: players are colocated with their session, and routers are spread.

use elastin_control::Settings;
use elastin_types::{ActorId, Method, NodeId};

use crate::metadata::{GEM, settings};
use crate::model::{ActorModel, Flow, Model};
use crate::schemas::{actor, references, schema};

const POLICY: &str = "
Player(p) in ref(Session(s).players) => pin(s); colocate(p, s);
server.cpu.perc > 80 or server.cpu.perc < 60 => balance({Router}, cpu);
";

fn halo(servers: u64) -> Model {
    let schema = schema(&["Player beat", "Session beat : players Player", "Router beat"]);
    let mut model = Model::new(schema, POLICY, settings());
    let nodes: Vec<NodeId> = (0..servers).map(|_| model.add_server()).collect();
    model.add_gem(GEM);
    for (session, node) in (0..).zip(nodes) {
        let players: Vec<ActorId> = (0..4).map(|player| actor("Player", session * 4 + player)).collect();
        let references = references("players", players);
        model.add_actor(
            actor("Session", session),
            node,
            ActorModel {
                references,
                state_bytes: 0.0,
            },
        );
    }
    model
}

fn serve(model: &mut Model, actor: ActorId, cpu_per_second: f64) {
    model.flows.push(Flow {
        target: actor,
        method: Method::of("beat"),
        cpu_ms: 1.0,
        net_bytes: 0.0,
        nested: Vec::new(),
        weight: cpu_per_second,
    });
}

#[test]
fn players_move_to_their_session_and_sessions_stay() {
    let mut model = halo(4);
    // Every player starts on the server after its session's.
    for player in 0..16 {
        let node = NodeId(1 + (player / 4 + 1) % 4);
        model.add_actor(actor("Player", player), node, ActorModel::default());
        serve(&mut model, actor("Player", player), 20.0);
    }
    model.run(4);
    for player in 0..16 {
        let session = actor("Session", player / 4);
        assert_eq!(
            model.place[&actor("Player", player)],
            model.place[&session],
            "{:#?}",
            model.story()
        );
        assert_eq!(model.place[&session], NodeId(1 + player / 4), "sessions are pinned");
    }
    assert_eq!(model.moves.len(), 16, "each player moved once");
    assert_eq!(
        model.servers().len(),
        4,
        "servers with pinned actors stay, however idle"
    );
    assert_eq!(
        model.story()[0],
        "Player/0 moved n2 → n1: rule 1 colocates it with Session/0"
    );
}

#[test]
fn a_new_player_starts_beside_the_session_that_calls_it() {
    let mut model = halo(4);
    model.run(2);
    for player in 0..16 {
        let session = actor("Session", player / 4);
        let node = model.create(actor("Player", player), Some(&session), ActorModel::default());
        assert_eq!(node, model.place[&session]);
    }
    model.run(4);
    assert_eq!(model.moves, [], "all were placed correctly");
}

#[test]
fn routers_are_spread_until_no_server_is_overloaded() {
    let mut model = halo(8);
    model.restrict(Settings {
        servers_min: 8,
        servers_max: 8,
        ..settings()
    });
    for router in 0..16 {
        model.add_actor(actor("Router", router), NodeId(1 + router % 2), ActorModel::default());
        serve(&mut model, actor("Router", router), 300.0);
    }
    model.noise = 0.02;
    model.run(12);
    for node in model.servers() {
        assert!(model.cpu(node) <= 85.0, "{node}: {:#?}", model.story());
    }
    let moves = model.moves.len();
    model.run(50);
    assert_eq!(model.moves.len(), moves, "{:#?}", model.story());
}
