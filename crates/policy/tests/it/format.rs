//! The formatter is idempotent, and keeps meaning and comments.

use elastin_policy::{Syntax, format};

use crate::common;

#[track_caller]
fn check(source: &str, expected: &str) {
    let formatted = format("policy.epl", source).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert_eq!(formatted, expected);
    assert_eq!(
        format("policy.epl", &formatted).as_deref(),
        Ok(expected),
        "formatting twice"
    );
    assert_eq!(meaning(source), meaning(&formatted), "the meaning");
    assert_eq!(comments(source), comments(&formatted), "the comments");
}

/// The syntax tree as text, without spans.
fn meaning(source: &str) -> String {
    let debug = format!("{:?}", Syntax::parse(source).ast());
    // The span of `true` is an unnamed field.
    without(&without(&debug, "span: Span {"), "Span {")
}

/// The text without the parts from `start` to the next closing brace.
fn without(text: &str, start: &str) -> String {
    let mut parts = text.split(start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once('}').unwrap().1)
}

fn comments(source: &str) -> Vec<String> {
    let syntax = Syntax::parse(source);
    let comments = syntax.tokens().iter().filter(|token| token.kind.is_comment());
    comments
        .map(|token| token.span.text(source).trim_end().to_string())
        .collect()
}

#[test]
fn short_rules_take_a_line() {
    check(
        "server . cpu.perc>80   or\n server.cpu.perc <60 ⇒balance( { Folder,File , },cpu ) ;",
        "server.cpu.perc > 80 or server.cpu.perc < 60 => balance({Folder, File}, cpu);\n",
    );
}

#[test]
fn long_rules_are_filled() {
    check(
        "server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) => reserve(fo, cpu); colocate(fo, fi);",
        "server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files)\n    => reserve(fo, cpu); colocate(fo, fi);\n",
    );
}

#[test]
fn headers_have_their_own_line() {
    check(
        "period 80 s ; count per minute;\n\n\n\n@priority( 10 )rule hot :(true)=>pin(Folder(f));\n@priority(-3) true => pin(File);",
        "period 80 s;\ncount per minute;\n\n@priority(10) rule hot:\n    (true) => pin(Folder(f));\n@priority(-3)\n    true => pin(File);\n",
    );
}

#[test]
fn comments_stay_where_they_are() {
    check(
        "\n\n// first\n\n// second   \ntrue => pin(Folder(f)); // after\n/* block\n   of lines */ true => pin(File(f));\n\n// last",
        "// first\n\n// second\ntrue => pin(Folder(f)); // after\n/* block\n   of lines */\ntrue => pin(File(f));\n\n// last\n",
    );
}

#[test]
fn comments_within_rules_stay_with_their_part() {
    check(
        "server.cpu.perc > 80 and // busy\nserver /* which */ .mem.perc > 3\n// so\n=> pin(Folder(f)); // keep\nreserve(f, cpu);",
        "server.cpu.perc > 80 and // busy\n/* which */\nserver.mem.perc > 3\n    // so\n    => pin(Folder(f)); // keep\n       reserve(f, cpu);\n",
    );
}

#[test]
fn a_policy_with_syntax_errors_is_not_formatted() {
    assert!(format("policy.epl", "server.cpu > => ;").is_err());
    assert_eq!(format("policy.epl", " \n ").as_deref(), Ok(""));
}

#[test]
fn the_example_policies_are_formatted() {
    for name in common::POLICIES {
        let source = common::read(&format!("{name}.epl"));
        assert_eq!(format("policy.epl", &source).as_deref(), Ok(source.as_str()), "{name}");
    }
}

#[test]
fn a_comment_anywhere_survives() {
    let mut policies = common::sources();
    policies.push("period 80 s;\n@priority(3) rule x: (true or true) and true => pin(Folder(f));".into());
    let mut tried = 0;
    for source in policies {
        for token in Syntax::parse(&source).tokens() {
            for comment in [" // c\n", "\n// c\n", " /* c */ ", "\n\n/* c\n   d */\n\n"] {
                let (before, after) = source.split_at(token.span.start);
                let source = format!("{before}{comment}{after}");
                let formatted = format("policy.epl", &source).unwrap();
                assert_eq!(
                    format("policy.epl", &formatted).as_ref(),
                    Ok(&formatted),
                    "twice:\n{source}"
                );
                assert_eq!(meaning(&source), meaning(&formatted), "meaning:\n{source}");
                assert_eq!(comments(&source), comments(&formatted), "comments:\n{source}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "{tried}");
}
