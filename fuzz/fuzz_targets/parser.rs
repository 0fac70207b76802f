//! Decodes and parses arbitrary bytes: the tree contains the whole text, and every name has a location in it.
#![no_main]

use elastin_policy::{Syntax, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = decode("fuzz.epl", bytes) else {
        return;
    };
    let syntax = Syntax::parse(&source);
    let text: String = syntax.tokens().iter().map(|token| token.span.text(&source)).collect();
    assert_eq!(text, source, "the tree is lossless");
    for mention in syntax.mentions() {
        assert!(!mention.span.text(&source).is_empty(), "a name has a location");
    }
    let report = syntax.report("fuzz.epl");
    assert_eq!(report.is_empty(), syntax.diagnostics().is_empty());
    assert_eq!(report.render().is_empty(), report.is_empty());
});
