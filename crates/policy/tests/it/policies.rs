//! The policies of the paper's table 1, as files, against snapshots whose actions were derived by hand.

mod common;

use common::POLICIES;
use elastin_policy::{Policy, Scenarios, compile};

/// Compiles a policy of the folder with the schema of its tests.
fn compiled(name: &str) -> (Policy, Scenarios, elastin_types::Schema) {
    let scenarios =
        Scenarios::parse(&common::read(&format!("{name}.test.json"))).expect("the test file is well formed");
    let schema = scenarios.schema().unwrap().expect("the test file has a schema");
    let source = common::read(&format!("{name}.epl"));
    match compile(&format!("{name}.epl"), &source, &schema) {
        Ok(compiled) => (compiled.policy, scenarios, schema),
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

#[test]
fn every_application_has_a_policy_that_does_what_was_derived_by_hand() {
    for name in POLICIES {
        let (policy, scenarios, schema) = compiled(name);
        assert!(!scenarios.cases.is_empty(), "{name} has cases");
        for result in scenarios.run(&policy, &schema).unwrap() {
            assert!(result.passed(), "{name}: {result:#?}");
        }
    }
}

#[test]
fn every_file_of_the_folder_is_tested() {
    let mut files = common::files();
    files.retain(|file| file.ends_with(".epl"));
    let expected: Vec<String> = POLICIES.iter().map(|name| format!("{name}.epl")).collect();
    assert_eq!(files, expected);
}

#[test]
fn a_compiled_policy_survives_its_file() {
    for name in POLICIES {
        let (policy, ..) = compiled(name);
        assert_eq!(Policy::from_file(&policy.to_file()).as_ref(), Ok(&policy), "{name}");
        let bytes = postcard::to_stdvec(&policy).unwrap();
        assert_eq!(postcard::from_bytes::<Policy>(&bytes).as_ref(), Ok(&policy), "{name}");
    }
}
