//! Invariants under random faults: one seed decides the cluster, the load and the faults. After a phase of faults, the
//! cluster heals and has to settle.

use std::collections::BTreeSet;

use elastin_control::{Change, Decision, Outcome, Purpose, Settings};
use elastin_types::{ActorId, ActorType, Method, NodeId};

use crate::metadata::settings;
use crate::model::{ActorModel, Flow, Model, Nested};
use crate::schemas::{actor, references, schema};

const POLICY: &str = "
true => pin(Anchor(a));
true => separate(Reader(r), Writer(w));
server.cpu.perc > 85 and client.call(Hot(h).get).perc > 40 and Part(p) in ref(h.parts)
    => reserve(h, cpu); colocate(h, p);
server.cpu.perc > 80 or server.cpu.perc < 30 => balance({Worker, Reader, Writer}, cpu);
";
const GEM: NodeId = NodeId(1000);
const SEEDS: std::ops::Range<u64> = 0..16;

/// Random numbers from one seed.
struct SeededRng(u64);

impl SeededRng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn serve(model: &mut Model, target: ActorId, per_second: f64, nested: Vec<Nested>) {
    model.flows.push(Flow {
        target,
        method: Method::of("get"),
        cpu_ms: 1.0,
        net_bytes: 0.0,
        nested,
        weight: per_second,
    });
}

fn cluster(rng: &mut SeededRng) -> Model {
    let schema = schema(&[
        "Anchor get",
        "Reader get",
        "Writer get",
        "Worker get",
        "Part get",
        "Hot get : parts Part",
    ]);
    let mut model = Model::new(schema, POLICY, settings());
    let servers = 1 + rng.below(4);
    for _ in 0..servers {
        model.add_server();
    }
    model.add_gem(GEM);
    for another in 0..rng.below(3) {
        model.add_gem(NodeId(GEM.0 + 100 + another));
    }
    model.restrict(Settings {
        servers_max: 8,
        ..settings()
    });
    for kind in ["Anchor", "Reader", "Writer", "Worker"] {
        for key in 0..rng.below(6) {
            let node = NodeId(1 + rng.below(servers));
            model.add_actor(actor(kind, key), node, ActorModel::default());
            let rate = 20.0 + rng.below(150) as f64;
            serve(&mut model, actor(kind, key), rate, Vec::new());
        }
    }
    for hot in 0..rng.below(3) {
        let parts: Vec<ActorId> = (0..3).map(|part| actor("Part", hot * 3 + part)).collect();
        let node = NodeId(1 + rng.below(servers));
        for part in &parts {
            model.add_actor(part.clone(), node, ActorModel::default());
        }
        let nested = parts.iter().map(|part| Nested {
            target: part.clone(),
            method: Method::of("get"),
            cpu_ms: 1.0,
            part: 0.33,
        });
        let rate = 100.0 + rng.below(400) as f64;
        serve(&mut model, actor("Hot", hot), rate, nested.collect());
        let model_of = ActorModel {
            references: references("parts", parts),
            state_bytes: 0.0,
        };
        model.add_actor(actor("Hot", hot), node, model_of);
    }
    model
}

fn disturb(model: &mut Model, rng: &mut SeededRng) {
    let loss = rng.below(30);
    let salt = rng.below(1000);
    model.faults.loses = Box::new(move |sent, _| (sent * 2_654_435_761 + salt * 40_503) % 101 < loss);
    let failing = 2 + rng.below(9);
    model.faults.fails_move = Box::new(move |tried| tried % failing == 0);
    model.noise = 0.05;
    for step in 0..5 {
        model.run(1 + u32::try_from(rng.below(5)).unwrap());
        match rng.below(4) {
            0 => {
                for gem in model.gems() {
                    model.kill_gem(gem);
                }
                model.run(1);
                model.add_gem(NodeId(GEM.0 + 1 + step));
            }
            1 if model.servers().len() > 1 => {
                let servers = model.servers();
                model.kill(servers[usize::try_from(rng.below(servers.len() as u64)).unwrap()]);
            }
            _ => {
                let factor = [0.3, 0.7, 1.5, 2.0][usize::try_from(rng.below(4)).unwrap()];
                for flow in &mut model.flows {
                    flow.weight *= factor;
                }
            }
        }
    }
}

fn heal(model: &mut Model) {
    model.faults = crate::model::Faults::default();
    model.noise = 0.0;
}

fn kinds_on(model: &Model, node: NodeId) -> BTreeSet<ActorType> {
    model.on(node).into_iter().map(|actor| actor.kind).collect()
}

fn is_drain(decision: &Decision) -> bool {
    matches!(
        decision.change,
        Change::Move {
            purpose: Purpose::Drain,
            ..
        }
    )
}

/// A pinned actor moves only when its server is drained.
fn check_pins(model: &Model, seed: u64) {
    let anchor = ActorType::of("Anchor");
    for (_, decision) in &model.records {
        let Change::Move { actor, with, .. } = &decision.change else {
            continue;
        };
        let moved = decision.outcome == Outcome::Done && !is_drain(decision);
        let pinned = actor.kind == anchor || with.iter().any(|other| other.kind == anchor);
        assert!(!(moved && pinned), "seed {seed}: {}", decision.explain(&model.schema));
    }
}

/// No move except a drain brings a reader to a writer.
fn check_separation(model: &Model, seed: u64) {
    let (reader, writer) = (ActorType::of("Reader"), ActorType::of("Writer"));
    for node in model.servers() {
        let kinds = kinds_on(model, node);
        let together = kinds.contains(&reader) && kinds.contains(&writer);
        let spare = model.servers().into_iter().any(|other| {
            let kinds = kinds_on(model, other);
            let neither = !kinds.contains(&reader) && !kinds.contains(&writer);
            let reserved = model.reserved().iter().any(|(reserved, _)| *reserved == other);
            neither && !reserved && model.cpu(other) < 60.0
        });
        assert!(
            !together || !spare,
            "seed {seed}: {node} has both, although another server has room for either: {:#?}",
            model.story()
        );
    }
}

/// A dedicated server hosts no other actors, except those that cannot leave.
fn check_reserved(model: &Model, seed: u64) {
    for (node, reserved) in model.reserved() {
        for actor in model.on(node) {
            let belongs = actor.kind == ActorType::of("Hot") || actor.kind == ActorType::of("Part");
            let pinned = actor.kind == ActorType::of("Anchor");
            assert!(
                belongs || pinned,
                "seed {seed}: {} is on {node}, which is reserved for {}: {:#?}",
                model.schema.show(&actor),
                model.schema.show(&reserved),
                model.story()
            );
        }
    }
}

#[test]
fn invariants_hold_under_faults_and_the_cluster_settles() {
    for seed in SEEDS {
        let mut rng = SeededRng(seed);
        let mut model = cluster(&mut rng);
        disturb(&mut model, &mut rng);
        heal(&mut model);
        // With several global managers it takes a while until the servers concerned report to the same one.
        let managers = u32::try_from(model.gems().len()).unwrap();
        model.run(50 * managers * managers);
        let (moves, servers) = (model.moves.len(), model.servers());
        model.run(20);
        assert_eq!(
            model.moves.len(),
            moves,
            "seed {seed} keeps moving: {:#?}",
            model.story()
        );
        assert_eq!(
            model.servers(),
            servers,
            "seed {seed} keeps scaling: {:#?}",
            model.story()
        );
        check_pins(&model, seed);
        check_separation(&model, seed);
        check_reserved(&model, seed);
    }
}
