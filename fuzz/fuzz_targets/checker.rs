//! Any text goes through the checker: a policy that compiles survives its file, one that does not is told why.
#![no_main]

use std::sync::LazyLock;

use elastin_policy::{Policy, compile, parse_schema};
use elastin_types::Schema;
use libfuzzer_sys::fuzz_target;

/// The types that the seeds speak of.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| parse_schema(include_str!("../schema.json")).expect("the schema is fine"));

fuzz_target!(|source: &str| {
    match compile("fuzz.epl", source, &SCHEMA) {
        Ok(compiled) => {
            assert!(!compiled.warnings.has_errors(), "what compiles has no errors");
            compiled.warnings.render();
            let file = compiled.policy.to_file();
            assert_eq!(
                Policy::from_file(&file).as_ref(),
                Ok(&compiled.policy),
                "the file says the same"
            );
        }
        Err(diagnostics) => {
            assert!(diagnostics.has_errors(), "what does not compile is told why");
            assert!(!diagnostics.render().is_empty());
        }
    }
});
