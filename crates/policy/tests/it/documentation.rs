//! The manual of the language: each example compiles, fails or warns as the manual says.

use elastin_policy::{
    ALTERNATIVES_MAX, ATOMS_MAX, DIAGNOSTICS_MAX, NESTING_MAX, SOURCE_BYTES_MAX, Scenarios, VARIABLES_MAX, compile,
    parse_schema,
};

const TEXT: &str = include_str!("../../../../docs/policy-language.md");

/// The fenced blocks of the page: the word after the fence, and the lines without their indentation.
fn blocks() -> Vec<(&'static str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    for line in TEXT.lines() {
        let indent = line.len() - line.trim_start().len();
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(info), None) => {
                open = Some((info, indent));
                blocks.push((info, String::new()));
            }
            (Some(_), Some(_)) => open = None,
            (None, Some((_, indent))) => {
                let block = &mut blocks.last_mut().expect("a block is open").1;
                block.push_str(line.get(indent..).unwrap_or_default());
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn every_example_has_the_stated_result() {
    let blocks = blocks();
    let schema = parse_schema(&blocks.iter().find(|(info, _)| *info == "json").unwrap().1).unwrap();
    let mut checked = 0;
    let mut last_error = String::new();
    for (info, source) in &blocks {
        let Some(expected) = info.strip_prefix("epl") else {
            // A text block shows the compiler's output for the example before it.
            if *info == "text" {
                assert_eq!(source.trim_end(), last_error);
            }
            continue;
        };
        checked += 1;
        let result = compile("policy.epl", source, &schema);
        let diagnostics = match &result {
            Ok(compiled) => &compiled.warnings,
            Err(diagnostics) => diagnostics,
        };
        let codes: Vec<&str> = diagnostics.items().iter().map(|item| item.code.as_str()).collect();
        last_error = diagnostics.render();
        match expected.trim_start_matches(',').split_once('=') {
            Some(("error", code)) => assert!(result.is_err() && codes == [code], "{source}\n{last_error}"),
            Some(("warning", code)) => assert!(result.is_ok() && codes == [code], "{source}\n{last_error}"),
            Some(other) => panic!("unknown expectation {other:?}"),
            None => {
                assert!(result.is_ok(), "{source}\n{last_error}");
                assert!(codes.is_empty(), "{source}\n{last_error}");
            }
        }
    }
    assert!(checked >= 15, "{checked} examples");
}

#[test]
fn the_example_test_passes_on_the_first_policy() {
    let blocks = blocks();
    let json: Vec<&String> = blocks
        .iter()
        .filter(|(info, _)| *info == "json")
        .map(|(_, text)| text)
        .collect();
    let policy = &blocks.iter().find(|(info, _)| *info == "epl").unwrap().1;
    let schema = parse_schema(json[0]).unwrap();
    let policy = compile("policy.epl", policy, &schema).unwrap().policy;
    let results = Scenarios::parse(json[1]).unwrap().run(&policy, &schema).unwrap();
    assert!(results.iter().all(|result| result.passed()), "{results:?}");
}

#[test]
fn the_stated_limits_are_those_of_the_compiler() {
    assert_eq!(SOURCE_BYTES_MAX, 1 << 20);
    let limits = TEXT.split_once("## Limits").unwrap().1;
    for (limit, words) in [
        (NESTING_MAX, "nest at most"),
        (VARIABLES_MAX, "speaks of at most"),
        (ATOMS_MAX, "condition has at most"),
        (ALTERNATIVES_MAX, "multiplies out to at most"),
        (DIAGNOSTICS_MAX, "reports at most"),
    ] {
        let words = format!("{words} {limit} ");
        let text = limits.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&words), "`{words}` in: {text}");
    }
}
