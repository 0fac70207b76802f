//! How fast policies are checked and evaluated, as ratios: `cargo run --release -p elastin-policy --example measure`.
#![allow(clippy::print_stdout, reason = "this is a program for people at a terminal")]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use elastin_policy::{
    Action, Balance, Behaviour, Bound, Facts, Fired, Index, Observed, Policy, Scenarios, Scope, compile, parse_schema,
};
use elastin_types::{
    ActorId, ActorStats, ActorType, CallIn, CallOut, Caller, Method, NodeId, PerResource, Resource, Schema,
    ServerState, ServerStats, Snapshot, Time, Usage,
};

const SERVERS: u64 = 16;
const EDGES_PER_ACTOR: u64 = 10;
const RUNS: usize = 7;
const RULES_CHECKED: usize = 10_000;

fn main() {
    let (policy, _) = media_service();
    let small = measured("100,000 actors", &policy, 100_000);
    let large = measured("400,000 actors", &policy, 400_000);
    println!(
        "per actor, 400,000 against 100,000: {:.2}x (at most 1.3x)",
        large.as_secs_f64() / 4.0 / small.as_secs_f64()
    );
    let (few, many) = (checking(100, 20), checking(1_000, 200));
    println!(
        "checking 1,000 rules over 200 types against 100 over 20: {:.2}x (at most 15x); {few:.1?} and {many:.1?}",
        many.as_secs_f64() / few.as_secs_f64()
    );
}

fn measured(name: &str, policy: &Policy, actors: u64) -> Duration {
    let snapshot = snapshot(actors);
    let index = Index::new(&snapshot);
    let (ours, by_hand) = (policy.evaluate(&index, Scope::Whole), loop_by_hand(policy, &index));
    assert!(ours == by_hand, "both find the same");
    let indexing = best(|| Index::new(&snapshot));
    let evaluated = best(|| policy.evaluate(&Index::new(&snapshot), Scope::Whole));
    let looped = best(|| loop_by_hand(policy, &Index::new(&snapshot)));
    println!(
        "{name}: {} fired; index {indexing:.1?}, with rules {evaluated:.1?}, by hand {looped:.1?}: {:.2}x (at most 3x)",
        ours.len(),
        evaluated.as_secs_f64() / looped.as_secs_f64()
    );
    evaluated
}

/// The best of several runs: the others were disturbed.
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let timed = |run: &mut dyn FnMut() -> T| {
        let start = processor_time();
        std::hint::black_box(run());
        processor_time().saturating_sub(start)
    };
    (0..RUNS).map(|_| timed(&mut run)).min().expect("there is a run")
}

/// The time that this thread has run, so that other programs do not count; the time of day where that is not known.
fn processor_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

fn media_service() -> (Policy, Schema) {
    let tests = Scenarios::parse(include_str!("../../../examples/policies/media-service.test.json")).expect("the tests parse");
    let schema = tests.schema().expect("the schema is fine").expect("there is one");
    let source = include_str!("../../../examples/policies/media-service.epl");
    let compiled = compile("media-service.epl", source, &schema).expect("the policy compiles");
    (compiled.policy, schema)
}

fn snapshot(actors: u64) -> Snapshot {
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
    // A counter that jumps about, the same every time.
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
            // Peers are near each other, as they are in applications with sessions.
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

/// The six rules of the Media Service as somebody would write them who needs no others.
fn loop_by_hand(policy: &Policy, facts: &Index<'_>) -> Vec<Fired> {
    let mut fired = Vec::new();
    let percent = |node, resource| facts.usage(node, resource).and_then(|usage: Usage| usage.percent());
    let bound = |variable: &str, actor: &ActorId| Bound {
        variable: variable.into(),
        actor: actor.clone(),
    };
    let observed = |text: &str, value: f64| Observed {
        text: text.into(),
        value: Some(value),
        held: true,
    };
    let balance = |rule: usize, resource: Resource, fired: &mut Vec<Fired>| {
        let Behaviour::Balance(balance) = &policy.rules()[rule].behaviours[0] else {
            unreachable!("the rule balances");
        };
        let balance: &Balance = balance;
        let (upper, lower) = (balance.upper.unwrap_or(100.0), balance.lower.unwrap_or(0.0));
        for node in facts.servers() {
            let Some(value) = percent(node, resource) else { continue };
            let text = if value > upper {
                format!("server.{resource}.perc > {upper}")
            } else if value < lower {
                format!("server.{resource}.perc < {lower}")
            } else {
                continue;
            };
            fired.push(Fired {
                rule,
                binding: vec![],
                server: Some(node),
                values: vec![observed(&text, value)],
                actions: vec![Action::Balance(balance.clone())],
            });
        }
    };
    let follow =
        |rule: usize, from: &str, to: &str, method: &str, names: (&str, &str), text: &str, fired: &mut Vec<Fired>| {
            let (to, method) = (ActorType::of(to), Method::of(method));
            for caller in facts.listed(Some(ActorType::of(from))) {
                for edge in facts.calls_out(*caller) {
                    let (caller, callee) = (facts.id(*caller), facts.id(edge.peer));
                    if edge.method == method && callee.kind == to && edge.calls.count > 0 {
                        fired.push(Fired {
                            rule,
                            binding: vec![bound(names.0, caller), bound(names.1, callee)],
                            server: None,
                            values: vec![observed(text, edge.calls.count as f64)],
                            actions: vec![
                                Action::Pin(caller.clone()),
                                Action::Colocate(caller.clone(), callee.clone()),
                            ],
                        });
                    }
                }
            }
        };
    balance(0, Resource::Net, &mut fired);
    for stream in facts.listed(Some(ActorType::of("VideoStream"))) {
        let node = facts.node(*stream);
        if let Some(value) = node.and_then(|node| percent(node, Resource::Cpu))
            && value > 50.0
        {
            let actor = facts.id(*stream);
            fired.push(Fired {
                rule: 1,
                binding: vec![bound("v", actor)],
                server: node,
                values: vec![observed("server.cpu.perc > 50", value)],
                actions: vec![Action::Reserve {
                    actor: actor.clone(),
                    resource: Resource::Cpu,
                }],
            });
        }
    }
    let tracked = "VideoStream(v).call(UserInfo(u).track).count > 0";
    follow(2, "VideoStream", "UserInfo", "track", ("v", "u"), tracked, &mut fired);
    let updated = "ReviewEditor(r).call(UserReview(u).update).count > 0";
    follow(
        3,
        "ReviewEditor",
        "UserReview",
        "update",
        ("r", "u"),
        updated,
        &mut fired,
    );
    for review in facts.listed(Some(ActorType::of("MovieReview"))) {
        let actor = facts.id(*review);
        fired.push(Fired {
            rule: 4,
            binding: vec![bound("m", actor)],
            server: None,
            values: vec![],
            actions: vec![Action::Pin(actor.clone())],
        });
    }
    balance(5, Resource::Cpu, &mut fired);
    fired
}

/// How long a policy with rules of every kind takes to be checked.
fn checking(rules: usize, types: usize) -> Duration {
    let mut schema = String::from("{");
    for number in 0..types {
        let comma = if number == 0 { "" } else { "," };
        let next = (number + 1) % types;
        write!(
            schema,
            r#"{comma}"T{number}": {{"functions": ["f", "g"], "properties": {{"p": "T{next}"}}}}"#
        )
        .expect("writing to a string can't fail");
    }
    let schema = parse_schema(&(schema + "}")).expect("the schema is fine");
    let mut source = String::new();
    for number in 0..rules {
        let (kind, next) = (number % types, (number + 1) % types);
        let rule = match (number / types) % 5 {
            0 => format!("server.cpu.perc > 80 or server.cpu.perc < 60 => balance({{T{kind}}}, cpu);\n"),
            1 => format!(
                "server.cpu.perc > 70 and client.call(T{kind}(a).f).perc > {} => reserve(a, cpu);\n",
                number % 50
            ),
            2 => format!("T{next}(b) in ref(T{kind}(a).p) => colocate(a, b);\n"),
            3 => format!("T{kind}(a).call(T{next}(b).g).count > 10 and a.cpu.perc < 5 => pin(a); colocate(a, b);\n"),
            _ => format!("T{kind}(a).mem.perc > 90 and T{kind}(a).call(T{next}(b).f).count > 3 => separate(a, b);\n"),
        };
        source.push_str(&rule);
    }
    let compiled = compile("many.epl", &source, &schema).expect("the rules compile");
    assert_eq!(compiled.policy.rules().len(), rules);
    // The clock may be coarse: both policies are checked as often as makes the same number of rules.
    let repetitions = (RULES_CHECKED / rules) as u32;
    let all = best(|| {
        for _ in 0..repetitions {
            std::hint::black_box(compile("many.epl", &source, &schema)).expect("the rules compile");
        }
    });
    all / repetitions
}
