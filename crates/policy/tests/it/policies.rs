//! The example policies, which are those of PLASMA's table 1, against snapshots with hand-derived actions.

use elastin_policy::Policy;

use crate::common::{self, POLICIES};

#[test]
fn every_example_policy_takes_the_hand_derived_actions() {
    for name in POLICIES {
        let (compiled, scenarios, schema) = common::example(name);
        assert!(!scenarios.cases.is_empty(), "{name} has cases");
        for result in scenarios.run(&compiled.policy, &schema).unwrap() {
            assert!(result.passed(), "{name}: {result:#?}");
        }
    }
}

#[test]
fn every_example_policy_is_tested() {
    let mut files = common::files();
    files.retain(|file| file.ends_with(".epl"));
    let expected: Vec<String> = POLICIES.iter().map(|name| format!("{name}.epl")).collect();
    assert_eq!(files, expected);
}

#[test]
fn a_compiled_policy_survives_encoding() {
    for name in POLICIES {
        let policy = common::example(name).0.policy;
        assert_eq!(Policy::from_file(&policy.to_file()).as_ref(), Ok(&policy), "{name}");
        let bytes = postcard::to_stdvec(&policy).unwrap();
        assert_eq!(postcard::from_bytes::<Policy>(&bytes).as_ref(), Ok(&policy), "{name}");
    }
}
