//! Queries of a compiled policy: its rules, its bounds, its types, and single conditions.

use std::collections::BTreeSet;
use std::time::Duration;

use elastin_policy::{
    Action, Bound, CountUnit, Fired, Index, Part, Policy, PolicyFileError, Scenarios, Scope, compile, parse_actor,
};
use elastin_types::{ActorId, ActorType, Method, NodeId, Property, Resource, Snapshot};

use crate::common::{self, policy};

fn kind(name: &str) -> ActorType {
    ActorType::of(name)
}

fn actor(name: &str) -> ActorId {
    parse_actor(name, &common::schema()).unwrap_or_else(|| panic!("{name} is an actor"))
}

fn bound(variable: &str, name: &str) -> Bound {
    Bound {
        variable: variable.into(),
        actor: actor(name),
    }
}

/// A snapshot from the inner part of a test case.
fn snapshot(case: &str) -> Snapshot {
    let text = format!(r#"{{ "cases": [ {{ "name": "", {case} }} ] }}"#);
    Scenarios::parse(&text).unwrap().cases[0]
        .snapshot(&common::schema())
        .unwrap()
}

const BUSY: &str = r#"
    "servers": { "n1": { "cpu": 90 }, "n2": { "cpu": 20 } },
    "actors": {
      "Folder/1": { "on": "n1", "cpu": 30, "refers": { "files": ["File/1", "File/9"] },
                    "called": [ { "by": "client", "with": "open", "count": 60 } ] },
      "Folder/2": { "on": "n1", "cpu": 4, "called": [ { "by": "client", "with": "open", "count": 40 } ] },
      "Folder/3": { "on": "n2", "cpu": 70, "called": [ { "by": "client", "with": "open", "count": 5 } ] },
      "File/1":   { "on": "n2", "cpu": 2, "called": [ { "by": "Folder/1", "with": "read", "count": 7 } ] } }"#;

#[test]
fn settings_and_headers_are_kept() {
    let policy = policy(
        "period 1.5 min; count per second;\n\n@priority(-7) rule calm: true => pin(Folder(f)); colocate(f, File(g)) ;"
            .replace("true", "Folder(f).call(File(g).read).count > 0")
            .as_str(),
    );
    assert_eq!(policy.period(), Some(Duration::from_secs(90)));
    assert_eq!(policy.count_unit(), CountUnit::Second);
    let rule = &policy.rules()[0];
    assert_eq!(
        (rule.name.as_deref(), rule.priority, rule.line),
        (Some("calm"), Some(-7), 3)
    );
    assert!(rule.text.starts_with("@priority(-7)") && rule.text.ends_with(';'));
    assert_eq!(policy.priority(0, &Action::Pin(actor("Folder/1"))), -7);
}

#[test]
fn default_priorities_follow_the_behaviour() {
    let policy = policy("true => pin(Folder(f));");
    let (one, other) = (actor("Folder/1"), actor("File/1"));
    let reserve = Action::Reserve {
        actor: one.clone(),
        resource: Resource::Cpu,
    };
    assert_eq!(policy.priority(0, &Action::Pin(one.clone())), 50);
    assert_eq!(policy.priority(0, &reserve), 40);
    assert_eq!(policy.priority(0, &Action::Separate(one.clone(), other.clone())), 30);
    assert_eq!(policy.priority(0, &Action::Colocate(one, other)), 10);
}

#[test]
fn rules_are_split_by_evaluating_manager() {
    let policy = policy(
        "server.cpu.perc > 80 => balance({Folder}, cpu);
         Folder(f).cpu.perc > 5 => balance({File}, cpu); reserve(f, cpu); pin(f);",
    );
    let rules = policy.rules();
    assert_eq!((rules[0].is_global(), rules[1].is_global()), (true, false));
    let names = |rule: usize| {
        let resource: Vec<_> = rules[rule]
            .resource_behaviours()
            .map(|behaviour| behaviour.name())
            .collect();
        let interaction: Vec<_> = rules[rule]
            .interaction_behaviours()
            .map(|behaviour| behaviour.name())
            .collect();
        (resource, interaction)
    };
    assert_eq!(names(0), (vec!["balance"], vec![]));
    assert_eq!(names(1), (vec!["balance", "reserve"], vec!["pin"]));
}

#[test]
fn balance_bounds_come_from_the_conditions() {
    let source = "server.cpu.perc > 80 or server.cpu.perc >= 70 or server.cpu.perc < 40 or server.cpu.perc < 50
                      => balance({Folder}, cpu);
                  server.cpu.perc > 80 and server.cpu.perc > 70 => balance({File}, cpu); balance({File}, mem);
                  server.cpu.perc > 65 => reserve(Player(p), cpu);
                  server.mem.size > 5 => balance({any}, mem);";
    let policy = policy(source);
    let bounds: Vec<_> = policy
        .balances()
        .map(|(rule, balance)| (rule, balance.resource.name(), balance.upper, balance.lower))
        .collect();
    let expected = [
        (0, "cpu", Some(70.0), Some(50.0)),
        (1, "cpu", Some(80.0), None),
        (1, "mem", None, None),
        (3, "mem", None, None),
    ];
    assert_eq!(bounds, expected);
    assert_eq!(policy.lowest_upper_bound(Resource::Cpu), Some(65.0));
    assert_eq!(policy.lowest_upper_bound(Resource::Mem), None);
}

#[test]
fn rules_are_found_by_actor_type() {
    let policy = policy(
        "File(fi) in ref(Folder(fo).files) => colocate(fo, fi);
         any(x).call(Player(p).beat).count > 5 => colocate(x, p);
         server.cpu.perc > 80 => balance({Session, Folder}, mem);
         server.cpu.perc > 80 and Session(s).cpu.perc > 3 => reserve(s, net);
         server.cpu.perc > 99 => pin(File(f));
         true => pin(Session(s));",
    );
    let partners: Vec<_> = policy
        .colocated_with(kind("File"))
        .map(|found| (found.rule, found.partner))
        .collect();
    assert_eq!(partners, [(0, Some(kind("Folder"))), (1, Some(kind("Player")))]);
    assert_eq!(policy.colocates(kind("Folder"), kind("File")), Some(0));
    assert_eq!(policy.colocates(kind("Session"), kind("Player")), Some(1));
    assert_eq!(policy.colocates(kind("Session"), kind("File")), None);
    assert_eq!(
        policy
            .balances_of(kind("Folder"))
            .map(|(rule, _)| rule)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(policy.balances_of(kind("File")).count(), 0);
    assert_eq!(
        policy.reserves_of(kind("Session")).collect::<Vec<_>>(),
        [(3, Resource::Net)]
    );
    assert_eq!(policy.always_pinned(kind("Session")), Some(5));
    assert_eq!(policy.always_pinned(kind("File")), None);
    assert_eq!(policy.critical_resource(kind("Session")), Some(Resource::Mem));
    assert_eq!(policy.critical_resource(kind("Player")), None);
}

#[test]
fn interest_lists_the_types_methods_and_properties_of_rules() {
    let policy = policy(
        "client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) => colocate(fo, fi);
         Player.call(any(x).read).count > 1 => pin(x);
         server.net.perc > 4 => balance({Session}, net);",
    );
    let interest = policy.interest();
    assert_eq!(interest.kinds.len(), 4, "`any` is every type");
    let methods = [(kind("Folder"), Method::of("open")), (kind("File"), Method::of("read"))];
    assert_eq!(interest.methods, methods.into());
    assert_eq!(interest.properties, [(kind("Folder"), Property::of("files"))].into());
}

#[test]
fn idle_actors_are_listed_only_if_a_rule_may_apply_to_them() {
    let cases = [
        ("client.call(Folder(fo).open).perc > 40 => reserve(fo, cpu);", vec![]),
        (
            "client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files) => colocate(fo, fi);",
            vec!["File"],
        ),
        // One alternative that an idle actor may satisfy is enough.
        (
            "client.call(Folder(f).open).count > 1 or server.cpu.perc > 80 => pin(f);",
            vec!["Folder"],
        ),
        // No calls are fewer than one.
        ("client.call(Folder(f).open).count < 1 => pin(f);", vec!["Folder"]),
        ("Folder(f).cpu.perc > 10 => pin(f);", vec![]),
        ("Folder(f).mem.size > 10 => pin(f);", vec!["Folder"]),
        ("server.cpu.perc > 80 => balance({Session}, cpu);", vec![]),
        ("server.mem.perc > 80 => balance({Session}, mem);", vec!["Session"]),
        ("true => pin(Player(p));", vec!["Player"]),
    ];
    for (rules, expected) in cases {
        let expected: BTreeSet<_> = expected.into_iter().map(kind).collect();
        assert_eq!(policy(rules).kinds_while_idle(), expected, "{rules}");
    }
    let all = policy("server.mem.perc > 80 => balance({any}, mem);");
    assert_eq!(all.kinds_while_idle(), all.interest().kinds);
}

#[test]
fn local_and_global_managers_see_their_own_rules_and_servers() {
    let policy = policy(
        "server.cpu.perc > 80 and client.call(Folder(f).open).perc > 30 => reserve(f, cpu);
         server.cpu.perc > 80 or server.cpu.perc < 30 => balance({Folder}, cpu);
         client.call(Folder(f).open).count > 1 => pin(f);",
    );
    let snapshot = snapshot(BUSY);
    let index = Index::new(&snapshot);
    let fired = |scope| -> Vec<(usize, Option<NodeId>, usize)> {
        let all: Vec<Fired> = policy.evaluate(&index, scope);
        all.iter()
            .map(|one| (one.rule, one.server, one.binding.len()))
            .collect()
    };
    let (n1, n2) = (Some(NodeId(1)), Some(NodeId(2)));
    assert_eq!(fired(Scope::Local(NodeId(2))), [(2, None, 1)]);
    assert_eq!(fired(Scope::Global), [(1, n1, 0), (1, n2, 0)]);
    let whole = [
        (0, n1, 1),
        (0, n1, 1),
        (1, n1, 0),
        (1, n2, 0),
        (2, None, 1),
        (2, None, 1),
        (2, None, 1),
    ];
    assert_eq!(fired(Scope::Whole), whole);
}

#[test]
fn firings_carry_the_measured_values() {
    let policy =
        policy("server.cpu.perc > 95 or client.call(Folder(f).open).perc > 50 and f.cpu.size >= 30 => pin(f);");
    let snapshot = snapshot(BUSY);
    let fired = policy.evaluate(&Index::new(&snapshot), Scope::Local(NodeId(1)));
    let values: Vec<_> = fired[0]
        .values
        .iter()
        .map(|value| (value.text.as_str(), value.value))
        .collect();
    let expected = [
        ("client.call(Folder(f).open).perc > 50", Some(60.0)),
        ("f.cpu.size >= 30", Some(30.0)),
    ];
    assert_eq!((fired.len(), values), (1, expected.to_vec()));
}

#[test]
fn a_reservation_lasts_while_the_part_without_the_server_holds() {
    let source = "server.cpu.perc > 95 and client.call(Folder(fo).open).perc > 40 and File(fi) in ref(fo.files)
                      => reserve(fo, cpu); colocate(fo, fi);
                  server.cpu.perc > 95 => reserve(Folder(f), cpu);
                  server.cpu.perc > 95 or Folder(f).cpu.perc > 50 => reserve(f, cpu);";
    let policy = policy(source);
    let snapshot = snapshot(BUSY);
    let index = Index::new(&snapshot);
    let holds = |rule: usize, binding: &[Bound], part| policy.holds(&index, rule, binding, part);
    // Folder/1 has enough calls, but its server is not busy enough for the whole rule.
    assert!(holds(0, &[bound("fo", "Folder/1")], Part::WithoutServer));
    assert!(!holds(0, &[bound("fo", "Folder/1")], Part::Whole));
    assert!(holds(
        0,
        &[bound("fo", "Folder/1"), bound("fi", "File/9")],
        Part::WithoutServer
    ));
    assert!(
        !holds(
            0,
            &[bound("fo", "Folder/1"), bound("fi", "File/8")],
            Part::WithoutServer
        ),
        "Folder/1 does not reference File/8"
    );
    assert!(
        !holds(0, &[bound("fo", "Folder/2")], Part::WithoutServer),
        "Folder/2 has no files"
    );
    assert!(
        holds(1, &[bound("f", "Folder/2")], Part::WithoutServer),
        "the whole condition is about the server"
    );
    assert!(
        !holds(2, &[bound("f", "Folder/2")], Part::WithoutServer),
        "the server's part is ignored"
    );
    assert!(holds(2, &[bound("f", "Folder/3")], Part::WithoutServer));
}

#[test]
fn rules_between_types_are_evaluated_per_pair() {
    let policy = policy(
        "true => separate(File(a), File(b));
         Folder(a).cpu.perc > 20 and server.cpu.perc > 80 => separate(a, File(b));",
    );
    assert_eq!(policy.type_separations().collect::<Vec<_>>(), [0, 1]);
    let snapshot = snapshot(BUSY);
    let index = Index::new(&snapshot);
    assert_eq!(policy.evaluate(&index, Scope::Whole), []);
    let separates = |rule, one, other| policy.separates(&index, rule, &actor(one), &actor(other));
    assert!(
        separates(0, "File/1", "File/77"),
        "an unconditional rule needs no statistics"
    );
    assert!(!separates(0, "File/1", "File/1"));
    assert!(!separates(0, "File/1", "Folder/1"));
    assert!(separates(1, "Folder/1", "File/1") && separates(1, "File/1", "Folder/1"));
    assert!(!separates(1, "Folder/2", "File/1"), "Folder/2 uses too little");
    assert!(
        !separates(1, "Folder/3", "File/1"),
        "the server of Folder/3 is not busy"
    );
}

#[test]
fn calls_recorded_by_one_side_only_count() {
    let policy = policy("Folder(a).call(File(b).read).count > 3 => colocate(a, b);");
    let far_callee = snapshot(
        r#""servers": { "n1": {} }, "actors": {
             "Folder/1": { "on": "n1", "calls": [ { "to": "File/5", "with": "read", "count": 4 } ] } }"#,
    );
    assert_eq!(
        policy.evaluate(&Index::new(&far_callee), Scope::Local(NodeId(1))).len(),
        1
    );
    let far_caller = snapshot(
        r#""servers": { "n1": {} }, "actors": {
             "File/5": { "on": "n1", "called": [ { "by": "Folder/1", "with": "read", "count": 4 } ] } }"#,
    );
    // The subject is the folder, so only the manager of its server fires the rule.
    assert_eq!(policy.evaluate(&Index::new(&far_caller), Scope::Local(NodeId(1))), []);
}

#[test]
fn damaged_policy_files_are_rejected() {
    let file = policy("Folder(a).call(File(b).read).count > 3 => colocate(a, b);").to_file();
    let replaced = |from: &str, to: &str| {
        assert!(file.contains(from), "{from} in {file}");
        Policy::from_file(&file.replacen(from, to, 1))
    };
    assert!(Policy::from_file(&file).is_ok());
    assert_eq!(
        replaced("\"version\": 1", "\"version\": 2"),
        Err(PolicyFileError::Version { found: 2 })
    );
    let damaged = [
        ("\"subject\": 0", "\"subject\": 1"),
        ("\"callee\": 1", "\"callee\": 7"),
        ("\"Atom\": 0", "\"Atom\": 3"),
        ("\"between_types\": false", "\"between_types\": true"),
        ("\"Greater\"", "\"Less\""),
    ];
    for (from, to) in damaged {
        let error = replaced(from, to).unwrap_err();
        assert!(matches!(error, PolicyFileError::Damaged { rule: 1, .. }), "{error}");
    }
    for text in ["", "{}", "[1, 2]", "{\"version\": \"x\"}", "{\"version\": 1}", "\u{0}"] {
        let error = Policy::from_file(text).unwrap_err();
        assert!(matches!(error, PolicyFileError::Malformed(_)), "{text}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(matches!(Policy::from_file(&deep), Err(PolicyFileError::Malformed(_))));
}

#[test]
fn deep_conditions_survive_encoding() {
    let depth = elastin_policy::NESTING_MAX;
    let open = "(server.cpu.perc > 1 and (server.cpu.perc > 2 or ".repeat(depth / 2);
    let source = format!("{open}true{} => pin(Folder(f));", "))".repeat(depth / 2));
    let policy = compile("deep.epl", &source, &common::schema()).unwrap().policy;
    assert_eq!(Policy::from_file(&policy.to_file()), Ok(policy));
}
