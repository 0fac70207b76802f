//! Parses the rendered text: it is valid Prometheus text, and has exactly the documented metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use elastin_cluster::{NodeDriverMeasures, StageMeasures};
use elastin_runtime::{Stats, TypeTotals};
use elastin_stores::StoreMeasures;
use elastin_types::{NodeId, PerResource, ServerState, ServerStats, Usage};

use super::text::{TYPES_MAX, render};
use super::{Measures, ServerMeasures};

/// A parsed metric family.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// The names of its labels.
    labels: BTreeSet<String>,
    values: Vec<(String, f64)>,
}

/// Parses the exposition format: every family is announced once, with its help before its type, and its samples follow.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("HELP has a text");
            assert!(!help.is_empty() && is_name(name), "{line}");
            assert!(families.insert(name.to_owned(), Family::default()).is_none(), "{line}");
            name.clone_into(&mut current);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("TYPE has a name");
            assert_eq!(name, current, "TYPE follows HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            let family = families.get_mut(name).expect("the family was announced");
            kind.clone_into(&mut family.kind);
        } else {
            let family = families.get_mut(&current).expect("a sample follows its family");
            let (sample, value) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = match sample.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').expect("labels end")),
                None => (sample, ""),
            };
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let of = of_histogram.filter(|_| family.kind == "histogram").unwrap_or(name);
            assert_eq!(of, current, "a sample belongs to the last family");
            family.labels.extend(labels_in(labels));
            family
                .values
                .push((sample.to_owned(), value.parse().expect("a number")));
        }
    }
    families
}

/// The names of the labels. Their values are quoted, with escaped quotes and backslashes.
fn labels_in(mut labels: &str) -> Vec<String> {
    let mut names = Vec::new();
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").expect("a label has a value");
        assert!(is_name(name), "{labels}");
        names.push(name.to_owned());
        let mut escaped = false;
        let end = rest.find(|char| {
            let ends = char == '"' && !escaped;
            escaped = char == '\\' && !escaped;
            ends
        });
        let rest = &rest[end.expect("a label's value ends") + 1..];
        labels = rest.strip_prefix(',').unwrap_or(rest);
    }
    names
}

fn is_name(name: &str) -> bool {
    name.starts_with(|char: char| char.is_ascii_lowercase())
        && name
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
}

fn measures() -> Measures {
    let of_type = |name: &str, turns| TypeTotals {
        name: name.into(),
        turns,
        busy: Duration::from_millis(1500),
    };
    let mut driver = NodeDriverMeasures::default();
    driver.node.rejections.by_actor = 2;
    driver.node.rejections.by_link = 5;
    driver.transport.sent = StageMeasures {
        frames: 40,
        bytes: 4000,
        batches: 10,
        time: Duration::from_millis(20),
    };
    Measures {
        name: "server \"1\\".into(),
        server: Some(ServerMeasures {
            work: Stats {
                workers: 2,
                activations: 7,
                overloads: 1,
                ..Stats::default()
            },
            types: vec![of_type("File", 10), of_type("Folder", 20)],
            usage: Some(ServerStats {
                node: NodeId(1),
                state: ServerState::Active,
                usage: PerResource {
                    cpu: Usage {
                        used: 500.0,
                        capacity: Some(1000.0),
                    },
                    ..Default::default()
                },
                cpu_demand: 0.0,
                actors: 0,
            }),
            mailbox_messages: 3,
        }),
        store: StoreMeasures {
            requests: vec![("save", 4)],
            failures: vec![("disk_full", 1)],
            waiting: 2,
            times: vec![1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            time: Duration::from_millis(250),
        },
        driver,
        servers: Some(1),
    }
}

#[test]
fn the_text_is_valid_prometheus_text() {
    let families = parse(&render(&measures()));
    for (metric, sample, value) in [
        ("elastin_info", "elastin_info{name=\"server \\\"1\\\\\"}", 1.0),
        ("elastin_activations", "elastin_activations", 7.0),
        ("elastin_turns_total", "elastin_turns_total{type=\"Folder\"}", 20.0),
        (
            "elastin_busy_seconds_total",
            "elastin_busy_seconds_total{type=\"File\"}",
            1.5,
        ),
        ("elastin_overloads_total", "elastin_overloads_total{by=\"actor\"}", 3.0),
        ("elastin_overloads_total", "elastin_overloads_total{by=\"link\"}", 5.0),
        ("elastin_send_frames_total", "elastin_send_frames_total", 40.0),
        ("elastin_send_seconds_total", "elastin_send_seconds_total", 0.02),
        (
            "elastin_store_requests_total",
            "elastin_store_requests_total{kind=\"save\"}",
            4.0,
        ),
        (
            "elastin_store_seconds",
            "elastin_store_seconds_bucket{le=\"0.0005\"}",
            3.0,
        ),
        (
            "elastin_store_seconds",
            "elastin_store_seconds_bucket{le=\"+Inf\"}",
            4.0,
        ),
        ("elastin_store_seconds", "elastin_store_seconds_sum", 0.25),
        ("elastin_store_seconds", "elastin_store_seconds_count", 4.0),
    ] {
        let found = families[metric].values.iter().find(|(name, _)| name == sample);
        assert_eq!(found.map(|(_, value)| *value), Some(value), "{sample}");
    }
}

#[test]
fn the_number_of_type_labels_is_bounded() {
    let mut measures = measures();
    let server = measures.server.as_mut().unwrap();
    server.types = (0..1000)
        .map(|number| TypeTotals {
            name: format!("Type{number}"),
            turns: 1,
            busy: Duration::ZERO,
        })
        .collect();
    let values = &parse(&render(&measures))["elastin_turns_total"].values;
    assert_eq!(values.len(), TYPES_MAX + 1);
    assert_eq!(
        values.last(),
        Some(&("elastin_turns_total{type=\"\"}".to_owned(), 800.0))
    );
}

#[test]
fn exactly_the_documented_metrics_are_rendered() {
    // | `name` | type | `label`: values | meaning |
    let documented: BTreeMap<String, (String, BTreeSet<String>)> = include_str!("../../../../docs/observability.md")
        .lines()
        .filter(|line| line.starts_with("| `elastin_"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let label = cells[3].split('`').nth(1).map(str::to_owned);
            let name = cells[1].trim_matches('`').to_owned();
            (name, (cells[2].to_owned(), label.into_iter().collect()))
        })
        .collect();
    let rendered: BTreeMap<String, (String, BTreeSet<String>)> = parse(&render(&measures()))
        .into_iter()
        .map(|(name, family)| (name, (family.kind, family.labels)))
        .collect();
    assert_eq!(documented, rendered);
}
