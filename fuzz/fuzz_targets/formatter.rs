//! Formats arbitrary text: formatting is idempotent and preserves the meaning and every comment.
#![no_main]

use std::sync::LazyLock;

use elastin_policy::{Compiled, Syntax, compile, format, parse_schema};
use elastin_types::Schema;
use libfuzzer_sys::fuzz_target;

/// The types that the seeds use.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| parse_schema(include_str!("../schema.json")).expect("the schema is valid"));

fuzz_target!(|source: &str| {
    let Ok(formatted) = format("fuzz.epl", source) else {
        return;
    };
    assert_eq!(
        format("fuzz.epl", &formatted).as_ref(),
        Ok(&formatted),
        "formatting is idempotent"
    );
    assert_eq!(words(source), words(&formatted), "words are preserved");
    assert_eq!(comments(source), comments(&formatted), "comments are preserved");
    let before = compile("fuzz.epl", source, &SCHEMA);
    let after = compile("fuzz.epl", &formatted, &SCHEMA);
    assert_eq!(
        before.map(meaning).ok(),
        after.map(meaning).ok(),
        "the meaning is preserved"
    );
});

/// All tokens but trivia and punctuation, which has several spellings.
fn words(source: &str) -> Vec<String> {
    let syntax = Syntax::parse(source);
    let tokens = syntax.tokens().iter().filter(|token| !token.kind.is_trivia());
    tokens
        .map(|token| token.span.text(source))
        .filter(|text| text.starts_with(|first: char| first.is_alphanumeric() || first == '_'))
        .map(str::to_owned)
        .collect()
}

fn comments(source: &str) -> Vec<String> {
    let syntax = Syntax::parse(source);
    let comments = syntax.tokens().iter().filter(|token| token.kind.is_comment());
    comments
        .map(|token| token.span.text(source).trim_end().to_owned())
        .collect()
}

/// The rules without their spelling and location.
fn meaning(compiled: Compiled) -> String {
    let rules = compiled.policy.rules().iter();
    let rules = rules.map(|rule| {
        (
            &rule.name,
            rule.priority,
            &rule.atoms,
            &rule.condition,
            &rule.behaviours,
        )
    });
    format!("{:?}", rules.collect::<Vec<_>>())
}
