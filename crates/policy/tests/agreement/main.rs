//! The evaluator against a deliberately naive one, on random policies and snapshots.

mod naive;
mod random;

use elastin_policy::{Action, Fired, Index, Scope, Syntax, compile, parse_schema};
use elastin_types::{NodeId, Schema};

/// How many policies with a snapshot are tried. Each is evaluated in three scopes.
const CASES: u64 = 10_000;

fn schema() -> Schema {
    parse_schema(
        r#"{ "A": { "functions": ["f", "g"], "properties": { "p": "A", "q": "B" } },
             "B": { "functions": ["f", "h"], "properties": { "r": "A" } } }"#,
    )
    .unwrap()
}

/// A comparable form: the two ends of symmetrical actions in order, everything as text.
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

#[test]
fn the_evaluator_agrees_with_the_naive_one() {
    let schema = schema();
    let (mut compared, mut bindings, mut mirrored, mut firing, mut seed) = (0, 0, 0, 0, 0);
    while compared < CASES {
        seed += 1;
        assert!(seed < 10 * CASES, "most random policies compile");
        let mut random = random::Random::new(seed);
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
            bindings += fast.len();
            mirrored += mirrors;
            firing += usize::from(!fast.is_empty());
        }
    }
    // The comparison is worth something only if rules fire often, and with mirror images.
    assert!(
        firing > 3_000 && bindings > 10_000 && mirrored > 100,
        "{firing} firing, {bindings} bindings, {mirrored} mirror images"
    );
}
