//! Renders all metrics in the Prometheus text format.
//!
//! INVARIANT: every label has a bounded set of values: names defined by the program, never keys of actors.

use elastin_cluster::{NodeDriverMeasures, StageMeasures};
use elastin_stores::{STORE_TIMES, StoreMeasures};
use elastin_types::Resource;

use super::writer::Text;
use super::{Measures, ServerMeasures};

/// The number of actor types with a label of their own; the rest share one. A program has few types, but nothing bounds
/// them.
pub(super) const TYPES_MAX: usize = 200;

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
    let full_mailboxes = measures.server.as_ref().map_or(0, |server| server.work.overloads);
    overload_family(&mut text, full_mailboxes, &measures.driver);
    stage_families(&mut text, &measures.driver);
    store_families(&mut text, &measures.store);
    text.into_string()
}

fn overload_family(text: &mut Text, full_mailboxes: u64, driver: &NodeDriverMeasures) {
    let name = "elastin_overloads_total";
    let rejections = &driver.node.rejections;
    text.family(name, "counter", "Messages rejected, by the queue that was full.");
    text.value(name, &[("by", "actor")], full_mailboxes + rejections.by_actor);
    text.value(name, &[("by", "link")], rejections.by_link);
    text.value(name, &[("by", "directory")], rejections.by_directory);
}

fn stage_families(text: &mut Text, driver: &NodeDriverMeasures) {
    let transport = &driver.transport;
    text.single(
        "elastin_links",
        "gauge",
        "Processes of the cluster to which there is a connection.",
        transport.links,
    );
    text.single(
        "elastin_wire_version_oldest",
        "gauge",
        "The oldest wire version of these connections; 0 without any.",
        transport.wire_version_oldest,
    );
    stage(text, "receive", "received", &transport.received);
    text.single(
        "elastin_receive_queued",
        "gauge",
        "Events, such as frames, that are queued for the protocol.",
        driver.events_queued,
    );
    text.single(
        "elastin_receive_busy_poll_seconds_total",
        "counter",
        "Processor time spent on busy-polling for frames. It does not count as used.",
        transport.busy_poll_time.as_secs_f64(),
    );
    text.single(
        "elastin_receive_refused_total",
        "counter",
        "Server-only frames that were received from clients and ignored.",
        driver.node.refused,
    );
    stage(text, "send", "written", &transport.sent);
    text.single(
        "elastin_send_queued_bytes",
        "gauge",
        "Bytes that are queued to be written.",
        transport.queued_bytes,
    );
    text.single(
        "elastin_send_backlogged_total",
        "counter",
        "Frames that were rejected because the send queue of their receiver was full.",
        transport.backlogged,
    );
    text.single(
        "elastin_send_unacknowledged",
        "gauge",
        "Frames of the protocol that were sent and not acknowledged.",
        driver.node.unacknowledged,
    );
    text.single(
        "elastin_send_unacknowledged_bytes",
        "gauge",
        "Bytes of arguments, replies and states in them: the credit in use.",
        driver.node.unacknowledged_bytes,
    );
}

fn stage(text: &mut Text, name: &str, done: &str, stage: &StageMeasures) {
    let mut single = |unit: &str, help: String, value: &dyn std::fmt::Display| {
        text.single(&format!("elastin_{name}_{unit}_total"), "counter", &help, value);
    };
    single("frames", format!("Frames that were {done}."), &stage.frames);
    single("bytes", format!("Bytes of frames that were {done}."), &stage.bytes);
    single(
        "batches",
        format!("Batches in which frames were {done}."),
        &stage.batches,
    );
    single(
        "seconds",
        format!("Time in which frames were {done}."),
        &stage.time.as_secs_f64(),
    );
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
        "Actors in the run queues of the work stage.",
        work.queued,
    );
    text.single(
        "elastin_work_turns_total",
        "counter",
        "Turns that were started from a mailbox. Inline turns are in elastin_turns_total only.",
        work.turns,
    );
    text.single(
        "elastin_work_throttled_total",
        "counter",
        "Pauses of a thread because the CPU share was used up.",
        work.throttled,
    );
    text.single("elastin_panics_total", "counter", "Turns that panicked.", work.panics);
    text.single(
        "elastin_mailbox_messages",
        "gauge",
        "Messages in mailboxes at the end of the last period.",
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
        &format!("Capacity of each resource, if known: {unit}."),
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
        "Requests to the state store that failed, by cause.",
    );
    for (why, count) in &store.failures {
        text.value("elastin_store_failures_total", &[("why", why)], count);
    }
    text.single(
        "elastin_store_waiting",
        "gauge",
        "Requests to the state store that are in flight.",
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
