//! Diagnostics: `diagnostics.txt` lists policies, each with the compiler's answer.
//!
//! After an intended change, run the tests once with `UPDATE_GOLDEN=1` and review the difference.

use std::fmt::Write;
use std::path::PathBuf;

use elastin_policy::{NESTING_MAX, SOURCE_BYTES_MAX, Syntax, compile, decode};

use crate::common;

const POLICY: &str = "=== policy\n";
const ANSWER: &str = "--- answer\n";

fn answer(source: &str) -> String {
    match compile("policy.epl", source, &common::schema()) {
        Ok(compiled) if compiled.warnings.is_empty() => "fine".into(),
        Ok(compiled) => compiled.warnings.render(),
        Err(diagnostics) => diagnostics.render(),
    }
}

#[test]
fn mistakes_get_the_expected_diagnostics() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics.txt");
    let golden = std::fs::read_to_string(&path).expect("the golden file exists");
    let mut actual = String::new();
    for case in golden.split(POLICY).skip(1) {
        let source = case.split(ANSWER).next().unwrap();
        let answer = answer(source);
        write!(actual, "{POLICY}{source}{ANSWER}{answer}\n\n").unwrap();
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    assert!(actual == golden, "the answers have changed; they are now:\n{actual}");
}

#[test]
fn too_large_input_is_refused() {
    let source = "server.cpu.perc > 80 => pin(Folder(f));\n".repeat(10 << 20 >> 5);
    assert!(source.len() > 10 << 20);
    let diagnostics = compile("policy.epl", &source, &common::schema()).unwrap_err();
    let expected = format!(
        "the policy has {} bytes, more than the {SOURCE_BYTES_MAX} allowed",
        source.len()
    );
    assert_eq!(diagnostics.items()[0].message, expected);
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    for depth in [NESTING_MAX, NESTING_MAX + 1, 100_000] {
        let source = format!("{}true{} => pin(Folder(f));", "(".repeat(depth), ")".repeat(depth));
        let result = compile("policy.epl", &source, &common::schema());
        assert_eq!(result.is_ok(), depth <= NESTING_MAX, "{depth}");
    }
    // Unclosed brackets, and other ways to nest.
    for source in [
        "(".repeat(100_000),
        "a(".repeat(100_000),
        "{".repeat(100_000),
        "/*".repeat(100_000),
        "a.b".repeat(100_000),
        "@".repeat(100_000),
        "true => ".repeat(50_000),
        format!("{} => pin(Folder(f));", "true or (".repeat(50_000)),
        format!("{} true => pin(Folder(f));", "true and ".repeat(50_000)),
    ] {
        let _ = compile("policy.epl", &source, &common::schema());
    }
}

#[test]
fn long_chains_do_not_count_as_nesting() {
    let source = format!("{} true => pin(Folder(f));", "true and ".repeat(50_000));
    assert!(compile("policy.epl", &source, &common::schema()).is_ok());
}

#[test]
fn the_first_invalid_byte_is_reported() {
    let diagnostics = decode("policy.epl", b"true =>\n\xff pin(f);").unwrap_err();
    assert_eq!(diagnostics.items()[0].message, "byte 8 is not UTF-8 text");
    assert_eq!(
        diagnostics.located().next().map(|at| (at.line, at.column)),
        Some((2, 1))
    );
    assert_eq!(decode("policy.epl", b"true").as_deref(), Ok("true"));
}

#[test]
fn a_long_list_of_mistakes_is_cut() {
    let source = "server.cpu.prec > 1 => pin(Folder(f));\n".repeat(500);
    let text = compile("policy.epl", &source, &common::schema()).unwrap_err().render();
    assert!(text.ends_with("and 400 more"), "{}", &text[text.len() - 100..]);
}

#[test]
fn all_mistakes_of_one_run_are_reported() {
    let source = "server.cpu.prec > 80 => pin(Foldr(f));\nclient.call(Folder(g).opne).count > 1 => pinn(g);";
    let diagnostics = compile("policy.epl", source, &common::schema()).unwrap_err();
    let found: Vec<(usize, &str)> = diagnostics
        .located()
        .map(|at| (at.line, at.diagnostic.code.as_str()))
        .collect();
    let expected = [
        (1, "unknown-statistic"),
        (1, "unknown-type"),
        (2, "unknown-function"),
        (2, "unknown-behaviour"),
    ];
    assert_eq!(found, expected);
}

/// Without a schema, only the syntax is checked, not the names.
#[test]
fn syntax_errors_are_reported_without_a_schema() {
    let report = Syntax::parse("true => pin(Nobody(n));\ntrue => pin(;").report("policy.epl");
    let found: Vec<_> = report.located().map(|at| (at.file, at.line, at.column)).collect();
    assert_eq!(found, [("policy.epl", 2, 13)]);
    assert!(Syntax::parse("true => pin(Nobody(n));").report("policy.epl").is_empty());
}
