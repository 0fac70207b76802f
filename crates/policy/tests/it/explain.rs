//! Explanations of rules that fired and of rules that did not.

use elastin_policy::{Index, Scenarios, Scope, compile};

const CASES: &str = r#"{
  "schema": { "Folder": { "functions": ["open"], "properties": { "files": "File" } }, "File": {}, "Player": {} },
  "cases": [ { "name": "some load",
    "servers": { "n1": { "cpu": 90.256 }, "n2": { "cpu": 62.5, "mem": [3, null] } },
    "actors": {
      "Folder/1": { "on": "n1", "cpu": 12, "called": [ { "by": "client", "with": "open", "count": 30 } ] },
      "Folder/2": { "on": "n1", "cpu": 5, "called": [ { "by": "client", "with": "open", "count": 70 } ],
                    "refers": { "files": ["File/1"] } },
      "Folder/3": { "on": "n2", "cpu": 9 } } } ] }"#;

#[track_caller]
fn check(policy: &str, expected: &str) {
    let scenarios = Scenarios::parse(CASES).unwrap();
    let schema = scenarios.schema().unwrap().unwrap();
    let policy = compile("test.epl", policy, &schema)
        .unwrap_or_else(|error| panic!("{error}"))
        .policy;
    let snapshot = scenarios.cases[0].snapshot(&schema).unwrap();
    let explanation = policy.explain(&Index::new(&snapshot), Scope::Whole, &schema);
    assert_eq!(explanation.render(&schema).trim_end(), expected);
}

#[test]
fn firings_are_explained_with_their_values() {
    check(
        "rule hot: server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) \
         => reserve(fo, cpu); colocate(fo, fi);",
        "hot (line 1)\n  fired for fo = Folder/2, fi = File/1 on n1: `server.cpu.perc > 80` was 90.26, \
         `client.call(Folder(fo).open).perc > 40` was 70\n    => reserve(Folder/2, cpu); colocate(Folder/2, File/1)",
    );
}

#[test]
fn the_nearest_miss_is_explained_with_its_distance() {
    check(
        "server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 75 => pin(fo);",
        "rule 1 (line 1)\n  did not fire; closest came fo = Folder/2 on n1: \
         `client.call(Folder(fo).open).perc > 75` was 70, 5 too little",
    );
    check(
        "Folder(fo).cpu.size < 5 => pin(fo);",
        "rule 1 (line 1)\n  did not fire; closest came fo = Folder/2 on n1: `Folder(fo).cpu.size < 5` was exactly 5",
    );
    check(
        "server.cpu.perc > 95 or server.cpu.perc < 60 => balance({Folder}, cpu);",
        "rule 1 (line 1)\n  did not fire; closest came n2: `server.cpu.perc < 60` was 62.5, 2.5 too much",
    );
}

#[test]
fn conditions_that_cannot_hold_are_named() {
    check(
        "Folder(fo).cpu.size > 10 and File(fi) in ref(fo.files) => colocate(fo, fi);",
        "rule 1 (line 1)\n  did not fire; closest came fo = Folder/1 on n1: \
         there is no other actor for which `File(fi) in ref(fo.files)` holds",
    );
    check(
        "Folder(fo).mem.perc > 10 and server.cpu.perc < 70 => pin(fo);",
        "rule 1 (line 1)\n  did not fire; closest came fo = Folder/3 on n2: \
         `Folder(fo).mem.perc > 10` is about something unknown",
    );
    check(
        "true => pin(Player(p));\ntrue => separate(Folder(a), Folder(b));",
        "rule 1 (line 1)\n  did not fire: no Player was measured here\nrule 2 (line 2)\n  did not fire: \
         it separates types: it is asked for pairs of actors when they are placed",
    );
}
