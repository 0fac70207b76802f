//! Checks arbitrary text: a policy that compiles survives its file format, and any other gets diagnostics.
#![no_main]

use std::sync::LazyLock;

use elastin_policy::{Policy, compile, parse_schema};
use elastin_types::Schema;
use libfuzzer_sys::fuzz_target;

/// The types that the seeds use.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| parse_schema(include_str!("../schema.json")).expect("the schema is valid"));

fuzz_target!(|source: &str| {
    match compile("fuzz.epl", source, &SCHEMA) {
        Ok(compiled) => {
            assert!(!compiled.warnings.has_errors(), "a compiled policy has no errors");
            compiled.warnings.render();
            let file = compiled.policy.to_file();
            assert_eq!(
                Policy::from_file(&file).as_ref(),
                Ok(&compiled.policy),
                "the file contains the same policy"
            );
        }
        Err(diagnostics) => {
            assert!(diagnostics.has_errors(), "a rejected policy has errors");
            assert!(!diagnostics.render().is_empty());
        }
    }
});
