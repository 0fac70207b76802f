//! The six rules of the Media Service as hand-written code.

use elastin_policy::{Action, Balance, Behaviour, Bound, Facts, Fired, Index, Observed, Policy};
use elastin_types::{ActorId, ActorType, Method, Resource, Usage};

/// Evaluates the rules without the policy language. Only the bounds of `balance` are taken from the policy.
pub(crate) fn evaluate(policy: &Policy, facts: &Index<'_>) -> Vec<Fired> {
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
