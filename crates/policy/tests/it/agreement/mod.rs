//! The evaluator agrees with a deliberately naive one, on random policies and snapshots.

mod naive;
mod random;

use elastin_policy::{
    Action, Diagnostics, Fired, Index, Part, Policy, Scope, Syntax, compile, distinct_actions, parse_schema,
};
use elastin_types::{NodeId, Schema};

use crate::common::Random;

/// Number of random policies with a snapshot. Each is evaluated in three scopes.
const CASES: u64 = 10_000;

fn schema() -> Schema {
    parse_schema(
        r#"{ "A": { "functions": ["f", "g"], "properties": { "p": "A", "q": "B" } },
             "B": { "functions": ["f", "h"], "properties": { "r": "A" } } }"#,
    )
    .unwrap()
}

/// Firings in a comparable form: sorted, with the two actors of symmetrical actions in order.
fn comparable(fired: &[Fired]) -> Vec<String> {
    let mut texts: Vec<String> = fired
        .iter()
        .map(|one| {
            let mut one = one.clone();
            for action in &mut one.actions {
                if let Action::Colocate(left, right) | Action::Separate(left, right) = action
                    && left > right
                {
                    std::mem::swap(left, right);
                }
            }
            format!("{one:?}")
        })
        .collect();
    texts.sort();
    texts
}

/// Checks the compiler's warnings against the firings; returns the number of warnings checked.
fn check_claims(warnings: &Diagnostics, policy: &Policy, fired: &[Fired], seed: u64) -> usize {
    let rule_at = |place: usize| {
        let span = warnings.items()[place].labels.last().unwrap().span;
        policy
            .rules()
            .iter()
            .position(|rule| rule.span.start <= span.start && span.end <= rule.span.end)
    };
    let actions = |rule: usize| -> Vec<String> {
        let of_rule: Vec<Fired> = fired.iter().filter(|one| one.rule == rule).cloned().collect();
        let texts = of_rule
            .iter()
            .flat_map(|one| distinct_actions(std::slice::from_ref(one), &schema()));
        // A wider `balance` covers a narrower one.
        let without_types = |text: String| match (text.find('{'), text.find('}')) {
            (Some(open), Some(close)) => format!("{}{}", &text[..open], &text[close..]),
            _ => text,
        };
        texts.map(without_types).collect()
    };
    let mut claims = 0;
    for (place, warning) in warnings.items().iter().enumerate() {
        match warning.code.as_str() {
            "never-holds" if warning.message.starts_with("this condition") => {
                let rule = rule_at(place).unwrap();
                assert!(
                    fired.iter().all(|one| one.rule != rule),
                    "seed {seed}: {}",
                    warnings.render()
                );
                claims += 1;
            }
            "shadowed" => {
                let narrow = policy
                    .rules()
                    .iter()
                    .position(|rule| rule.span == warning.span())
                    .unwrap();
                let wide = actions(rule_at(place).unwrap());
                let covered = actions(narrow).iter().all(|action| wide.contains(action));
                assert!(covered, "seed {seed}: {}", warnings.render());
                claims += 1;
            }
            _ => {}
        }
    }
    claims
}

#[test]
fn the_evaluator_agrees_with_the_naive_one() {
    let schema = schema();
    let (mut compared, mut bindings, mut mirrored, mut firing, mut claims, mut seed) = (0, 0, 0, 0, 0, 0);
    while compared < CASES {
        seed += 1;
        assert!(seed < 10 * CASES, "most random policies compile");
        let mut random = Random::new(seed);
        let source = random.policy();
        let Ok(compiled) = compile("random.epl", &source, &schema) else {
            continue;
        };
        compared += 1;
        let snapshot = random.snapshot();
        let index = Index::new(&snapshot);
        let ast = Syntax::parse(&source).ast();
        for scope in [Scope::Local(NodeId(1)), Scope::Global, Scope::Whole] {
            let fast = compiled.policy.evaluate(&index, scope);
            let (slow, mirrors) = naive::evaluate(&ast, &schema, &snapshot, scope);
            assert_eq!(
                comparable(&fast),
                comparable(&slow),
                "seed {seed}, {scope:?}\n{source}\n{snapshot:#?}"
            );
            for one in fast.iter().filter(|one| !compiled.policy.rules()[one.rule].is_global()) {
                let holds = compiled.policy.holds(&index, one.rule, &one.binding, Part::Whole);
                assert!(holds, "seed {seed}: the condition of a firing holds\n{source}\n{one:?}");
            }
            claims += check_claims(&compiled.warnings, &compiled.policy, &fast, seed);
            bindings += fast.len();
            mirrored += mirrors;
            firing += usize::from(!fast.is_empty());
        }
    }
    // The comparison means little unless rules fire often, also for both orders of a pair.
    assert!(
        firing > 3_000 && bindings > 10_000 && mirrored > 100 && claims > 500,
        "{firing} firing, {bindings} bindings, {mirrored} mirrored bindings, {claims} warnings"
    );
}
