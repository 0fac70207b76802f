//! The text format of Prometheus (exposition format 0.0.4).
//!
//! INVARIANT: every label has a bounded set of values: names that the program has, never keys of actors.

use std::fmt::{Display, Write};

use elastin_stores::{STORE_TIMES, StoreMeasures};
use elastin_types::Resource;

use super::{Measures, ServerMeasures};

/// How many actor types are told apart; the rest count together. A program has few, but nothing bounds them.
const TYPES_MAX: usize = 200;

/// The text of these measures.
pub(crate) fn render(measures: &Measures) -> String {
    let mut text = Text::default();
    text.family("elastin_info", "gauge", "The process, always 1.");
    text.value("elastin_info", &[("name", &measures.name)], 1);
    if let Some(server) = &measures.server {
        server_families(&mut text, server);
    }
    if let Some(servers) = measures.servers {
        text.single("elastin_servers", "gauge", "Servers of the cluster.", servers);
    }
    text.single(
        "elastin_traffic_bytes_total",
        "counter",
        "Bytes sent to and received from other processes of the cluster.",
        measures.traffic_bytes,
    );
    store_families(&mut text, &measures.store);
    text.0
}

fn server_families(text: &mut Text, server: &ServerMeasures) {
    let work = &server.work;
    text.single("elastin_activations", "gauge", "Actors in memory.", work.activations);
    text.single(
        "elastin_work_threads",
        "gauge",
        "Threads of the work stage.",
        work.workers,
    );
    text.single(
        "elastin_work_queued",
        "gauge",
        "Actors that wait for a thread of the work stage.",
        work.queued,
    );
    text.single(
        "elastin_work_turns_total",
        "counter",
        "Turns that began out of mailboxes. Inline turns are in elastin_turns_total only.",
        work.turns,
    );
    text.single(
        "elastin_work_throttled_total",
        "counter",
        "Pauses of a thread because the CPU share was used up.",
        work.throttled,
    );
    text.single("elastin_panics_total", "counter", "Turns that panicked.", work.panics);
    text.family(
        "elastin_overloads_total",
        "counter",
        "Messages turned away, by what was full.",
    );
    text.value("elastin_overloads_total", &[("by", "actor")], work.overloads);
    text.single(
        "elastin_mailbox_messages",
        "gauge",
        "Messages that waited in mailboxes at the end of the last period.",
        server.mailbox_messages,
    );
    type_families(text, server);
    let Some(usage) = server.usage.as_ref().map(|stats| &stats.usage) else {
        return;
    };
    let unit = "CPU milliseconds per second, bytes, bytes per second";
    text.family(
        "elastin_used",
        "gauge",
        &format!("Use of each resource in the last period: {unit}."),
    );
    for resource in Resource::ALL {
        text.value("elastin_used", &[("resource", resource.name())], usage[resource].used);
    }
    text.family(
        "elastin_capacity",
        "gauge",
        &format!("What there is of each resource, if known: {unit}."),
    );
    for resource in Resource::ALL {
        if let Some(capacity) = usage[resource].capacity {
            text.value("elastin_capacity", &[("resource", resource.name())], capacity);
        }
    }
}

fn type_families(text: &mut Text, server: &ServerMeasures) {
    let (named, rest) = server.types.split_at(server.types.len().min(TYPES_MAX));
    text.family(
        "elastin_turns_total",
        "counter",
        "Turns of actors, by type; counted by sampling, once per period.",
    );
    for of_type in named {
        text.value("elastin_turns_total", &[("type", &of_type.name)], of_type.turns);
    }
    let turns: u64 = rest.iter().map(|of_type| of_type.turns).sum();
    if !rest.is_empty() {
        text.value("elastin_turns_total", &[("type", "")], turns);
    }
    text.family(
        "elastin_busy_seconds_total",
        "counter",
        "Time that turns of actors ran, by type; by sampling.",
    );
    for of_type in named {
        let seconds = of_type.busy.as_secs_f64();
        text.value("elastin_busy_seconds_total", &[("type", &of_type.name)], seconds);
    }
    if !rest.is_empty() {
        let seconds: f64 = rest.iter().map(|of_type| of_type.busy.as_secs_f64()).sum();
        text.value("elastin_busy_seconds_total", &[("type", "")], seconds);
    }
}

fn store_families(text: &mut Text, store: &StoreMeasures) {
    text.family(
        "elastin_store_requests_total",
        "counter",
        "Requests to the state store, by kind.",
    );
    for (kind, count) in &store.requests {
        text.value("elastin_store_requests_total", &[("kind", kind)], count);
    }
    text.family(
        "elastin_store_failures_total",
        "counter",
        "Requests to the state store that failed, by why.",
    );
    for (why, count) in &store.failures {
        text.value("elastin_store_failures_total", &[("why", why)], count);
    }
    text.single(
        "elastin_store_waiting",
        "gauge",
        "Requests to the state store that have not ended.",
        store.waiting,
    );
    let name = "elastin_store_seconds";
    text.family(name, "histogram", "How long requests to the state store took.");
    let mut sum = 0;
    let ends = STORE_TIMES.iter().map(|end| end.as_secs_f64().to_string());
    for (count, end) in store.times.iter().zip(ends.chain(["+Inf".to_owned()])) {
        sum += count;
        text.value("elastin_store_seconds_bucket", &[("le", &end)], sum);
    }
    text.value("elastin_store_seconds_sum", &[], store.time.as_secs_f64());
    text.value("elastin_store_seconds_count", &[], sum);
}

/// Text that is being written.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elastin_runtime::{Stats, TypeTotals};

    use super::*;

    fn measures() -> Measures {
        let of_type = |name: &str, turns| TypeTotals {
            name: name.into(),
            turns,
            busy: Duration::from_millis(1500),
        };
        Measures {
            name: "server \"1\"".into(),
            server: Some(ServerMeasures {
                work: Stats {
                    workers: 2,
                    activations: 7,
                    ..Stats::default()
                },
                types: vec![of_type("File", 10), of_type("Folder", 20)],
                usage: None,
                mailbox_messages: 3,
            }),
            store: StoreMeasures {
                requests: vec![("save", 4)],
                failures: vec![("disk_full", 1)],
                waiting: 2,
                times: vec![1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                time: Duration::from_millis(250),
            },
            traffic_bytes: 99,
            servers: None,
        }
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let text = render(&measures());
        for line in [
            "elastin_info{name=\"server \\\"1\\\"\"} 1",
            "# TYPE elastin_activations gauge",
            "elastin_activations 7",
            "elastin_turns_total{type=\"Folder\"} 20",
            "elastin_busy_seconds_total{type=\"File\"} 1.5",
            "elastin_overloads_total{by=\"actor\"} 0",
            "elastin_store_requests_total{kind=\"save\"} 4",
            "elastin_store_seconds_bucket{le=\"0.0005\"} 3",
            "elastin_store_seconds_bucket{le=\"+Inf\"} 4",
            "elastin_store_seconds_sum 0.25",
            "elastin_store_seconds_count 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        // Each family is announced once, and every line is a comment or a value.
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut once = types.clone();
        once.dedup();
        assert_eq!(types, once);
        assert!(
            text.lines()
                .all(|line| line.starts_with('#') || line.rsplit_once(' ').is_some())
        );
    }

    #[test]
    fn the_labels_stay_bounded_whatever_the_types() {
        let mut measures = measures();
        let server = measures.server.as_mut().unwrap();
        server.types = (0..1000)
            .map(|number| TypeTotals {
                name: format!("Type{number}"),
                turns: 1,
                busy: Duration::ZERO,
            })
            .collect();
        let text = render(&measures);
        let values = text.lines().filter(|line| line.starts_with("elastin_turns_total"));
        assert_eq!(values.count(), TYPES_MAX + 1);
        assert!(text.contains("elastin_turns_total{type=\"\"} 800\n"));
    }

    #[test]
    fn every_family_is_documented() {
        let documented = include_str!("../../../../docs/observability.md");
        let mut measures = measures();
        measures.servers = Some(1);
        let server = measures.server.as_mut().unwrap();
        server.usage = Some(elastin_types::ServerStats {
            node: elastin_types::NodeId(1),
            state: elastin_types::ServerState::Active,
            usage: Default::default(),
            cpu_demand: 0.0,
            actors: 0,
        });
        let text = render(&measures);
        let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        for family in families.filter_map(|line| line.split(' ').next()) {
            assert!(
                documented.contains(&format!("`{family}`")),
                "{family} is not in docs/observability.md"
            );
        }
    }
}
