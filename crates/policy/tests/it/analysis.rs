//! A warning about a conflict carries a witness: a snapshot in which the conflicting rules fire.

use std::collections::BTreeSet;

use elastin_policy::{Compiled, Index, Scope, compile};

use crate::common;

fn compiled(source: &str) -> Compiled {
    compile("test.epl", source, &common::schema()).unwrap_or_else(|error| panic!("{error}"))
}

/// The rules that fire in the witness of the only warning with this code.
#[track_caller]
fn firing(source: &str, code: &str) -> BTreeSet<usize> {
    let Compiled { policy, warnings } = compiled(source);
    let warning = warnings.items().iter().find(|warning| warning.code == code);
    let warning = warning.unwrap_or_else(|| panic!("no {code}: {warnings}"));
    assert!(warning.message.contains(" can "), "{}", warning.message);
    let witness = warning.witness.as_ref().expect("a possible conflict has a witness");
    let fired = policy.evaluate(&Index::new(witness), Scope::Whole);
    fired.iter().map(|one| one.rule).collect()
}

#[test]
fn witnesses_make_the_rules_fire() {
    let both = BTreeSet::from([0, 1]);
    let cases = [
        (
            "server.cpu.perc > 80 and server.cpu.size > 5000 and Folder(f).cpu.perc > 10 => reserve(f, cpu); \
             client.call(Folder(f).open).perc > 40.25 and client.call(f.open).perc < 40.5 => pin(f);",
            "pin-against-reserve",
        ),
        (
            "Folder(a).call(File(b).read).size > 100 and a.call(b.read).perc >= 20 => colocate(a, b); \
             Session.call(File(b).write).count > 7 and b in ref(Folder(a).files) => separate(a, b);",
            "colocate-against-separate",
        ),
        (
            "true => pin(any(x)); server.mem.perc > 70 or server.mem.perc < 30 => balance({Player}, mem);",
            "pin-against-balance",
        ),
        (
            "count per hour; Folder(a).cpu.size > 3 => reserve(a, cpu); \
             any.call(Folder(a).open).count > 0.5 and any.call(a.open).count < 1.5 => reserve(a, mem);",
            "priority-tie",
        ),
    ];
    for (source, code) in cases {
        assert_eq!(firing(source, code), both, "{source}");
    }
}

#[test]
fn a_conflict_of_dependent_features_is_reported_as_may() {
    // Two shares of 60 % exceed the whole, but the ranges alone do not show it.
    let source = "client.call(Folder(a).open).perc > 60 and client.call(Folder(b).open).perc > 60 \
                  and Folder(b) in ref(a.parent) => colocate(a, b); \
                  server.cpu.perc > 80 => reserve(Folder(c), cpu); \
                  Folder(d).cpu.perc > 40 and d.cpu.size < 10 and d.mem.perc > 3 and server.cpu.perc > 90 \
                  and server.cpu.size > 4000 => pin(d);";
    let warnings = compiled(source).warnings;
    let pinned = warnings
        .items()
        .iter()
        .find(|warning| warning.code == "pin-against-reserve");
    let pinned = pinned.expect("the ranges allow it");
    assert!(pinned.message.contains(" may "), "{}", pinned.message);
    assert_eq!(pinned.witness, None);
}

#[test]
fn rules_that_cannot_hold_together_do_not_warn() {
    for source in [
        "server.cpu.perc < 50 => pin(Folder(f)); server.cpu.perc > 80 => balance({Folder}, cpu);",
        "Folder(a).cpu.perc < 5 => pin(a); Folder(b).cpu.perc >= 5 => reserve(b, cpu);",
        "true => pin(Folder(f)); server.cpu.perc > 80 => balance({File}, cpu);",
        "true => pin(Session(s)); Player(p) in ref(Session(s).players) => colocate(p, s);",
        "Folder(a).cpu.perc > 80 => reserve(a, cpu); Folder(a).cpu.perc > 60 => pin(a); Folder(a).cpu.perc < 60 => pin(a);",
    ] {
        let warnings = compiled(source).warnings;
        let conflicts = warnings
            .items()
            .iter()
            .filter(|warning| warning.code.contains("against"));
        let expected = usize::from(source.contains("60 => pin(a)"));
        assert_eq!(conflicts.count(), expected, "{warnings}");
    }
}

#[test]
fn the_example_policies_have_only_the_known_conflicts() {
    let codes = |name: &str| -> Vec<String> {
        let (compiled, ..) = common::example(name);
        let warnings = compiled.warnings.items().iter();
        warnings.map(|warning| warning.code.clone()).collect()
    };
    // A pinned VideoStream may also be reserved: then its present server is dedicated to it.
    assert_eq!(codes("media-service"), ["pin-against-reserve"]);
    // A hot child of a hot partition is reserved away from it.
    assert_eq!(codes("e-store"), ["reserved-apart"]);
    for name in common::POLICIES {
        if !["media-service", "e-store"].contains(&name) {
            assert!(codes(name).is_empty(), "{name}: {:?}", codes(name));
        }
    }
}
