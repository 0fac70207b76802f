//! The Media Service: its policy, and snapshots of any size.

use std::time::Duration;

use elastin_policy::{Policy, Scenarios, compile};
use elastin_types::{
    ActorId, ActorStats, ActorType, CallIn, CallOut, Caller, Method, NodeId, PerResource, ServerState, ServerStats,
    Snapshot, Time, Usage,
};

const SERVERS: u64 = 16;
const EDGES_PER_ACTOR: u64 = 10;

/// The six rules of the paper.
pub(crate) fn policy() -> Policy {
    let tests = include_str!("../../../examples/policies/media-service.test.json");
    let tests = Scenarios::parse(tests).expect("the tests parse");
    let schema = tests.schema().expect("the schema is valid").expect("there is a schema");
    let source = include_str!("../../../examples/policies/media-service.epl");
    let compiled = compile("media-service.epl", source, &schema).expect("the policy compiles");
    compiled.policy
}

/// A deterministic snapshot of this many actors with ten times as many edges.
pub(crate) fn snapshot(actors: u64) -> Snapshot {
    let kinds = [
        ("FrontEnd", "request"),
        ("VideoStream", "watch"),
        ("UserInfo", "track"),
        ("ReviewEditor", "write"),
        ("UserReview", "update"),
        ("MovieReview", "add"),
        ("ReviewChecker", "check"),
        ("UserInfo", "rent"),
    ];
    // A deterministic pseudo-random counter.
    let mut state = 1_u64;
    let mut random = move |limit: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % limit
    };
    let id = |number: u64| ActorId::new(ActorType::of(kinds[(number % 8) as usize].0), number);
    let usage = |used: u64| Usage {
        used: used as f64,
        capacity: Some(100.0),
    };
    let servers = (0..SERVERS)
        .map(|node| ServerStats {
            node: NodeId(node),
            state: ServerState::Active,
            usage: PerResource {
                cpu: usage(40 + node * 4),
                mem: usage(10),
                net: usage(50 + node * 3),
            },
            cpu_demand: 0.0,
            actors: actors / SERVERS,
        })
        .collect();
    let mut stats: Vec<ActorStats> = (0..actors)
        .map(|number| ActorStats {
            functions: Vec::new(),
            actor: id(number),
            node: NodeId(random(SERVERS)),
            since: Time::ZERO,
            used: PerResource::default(),
            calls_in: Vec::new(),
            calls_out: Vec::new(),
            references: Vec::new(),
        })
        .collect();
    for caller in 0..actors {
        for _ in 0..EDGES_PER_ACTOR {
            // Peers are near each other, as in applications with sessions.
            let callee = (caller + random(4096)) % actors;
            let method = Method::of(kinds[(callee % 8) as usize].1);
            let count = 1 + random(20);
            let (caller_id, callee_id) = (id(caller), id(callee));
            stats[callee as usize].calls_in.push(CallIn {
                caller: Caller::Actor(caller_id),
                method,
                count,
                bytes: 100 * count,
                node: None,
            });
            stats[caller as usize].calls_out.push(CallOut {
                callee: callee_id,
                method,
                count,
                bytes: 100 * count,
                node: None,
            });
        }
    }
    Snapshot {
        at: Time::ZERO,
        period: Duration::from_secs(60),
        servers,
        actors: stats,
    }
}
