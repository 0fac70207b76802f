//! One run of the experiment.

use std::time::{Duration, Instant};

use anyhow::Context;
use elastin::{Change, Decision, DecisionOutcome, Embedded};
use metadata_server::{Audit, Load, LoadReport, Shape};
use tokio::time::MissedTickBehavior;

use super::view::{Frame, ServerRow, View};

/// The interval of redraws.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// The number of samples that the displayed latencies cover.
const SAMPLES_SHOWN: usize = 4;

/// The comparison uses the last part of each run, when the policy has had its effect.
const MEASURED_PART: u32 = 3;

pub(crate) struct Experiment {
    pub(crate) length: Duration,
    pub(crate) cpu_share: f64,
    pub(crate) period: Duration,
}

/// Results of one run.
pub(crate) struct Finding {
    /// The latencies of the last part, sorted.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) audit: Audit,
    pub(crate) servers: usize,
    pub(crate) actors_moved: usize,
    /// Decisions with their reasons.
    pub(crate) done: Vec<String>,
}

impl Experiment {
    /// Runs the experiment once, from one server on.
    pub(crate) async fn run(&self, title: &str, with_policy: bool) -> anyhow::Result<Finding> {
        let app = metadata_server::app();
        let mut builder = app
            .embedded()
            .servers(1)
            .servers_max(4)
            .cpu_share(self.cpu_share)
            .period(self.period)
            .node_arguments(["demo-server", "node"]);
        if !with_policy {
            builder = builder.without_policy();
        }
        let cluster = builder.start().await.context("the cluster did not start")?;
        let shape = Shape::default();
        let mut clients = Vec::new();
        for _ in 0..shape.clients {
            clients.push(cluster.client().await.context("a client could not connect")?);
        }
        let load = Load::start(&clients, shape)
            .await
            .context("the folders could not be made")?;
        let latencies = self.watch(title, &cluster, &load).await;
        let servers = cluster.servers().len();
        let (report, audit) = load.finish().await.context("the folders could not be audited")?;
        let decisions = cluster.decisions();
        let done = decisions
            .iter()
            .filter(|decision| decision.outcome == DecisionOutcome::Done);
        let actors_moved = done.clone().map(actors_moved).sum();
        let done = done.map(|decision| cluster.explain(decision)).collect();
        cluster.shutdown().await;
        let LoadReport {
            calls,
            failed,
            first_error,
            ..
        } = report;
        Ok(Finding {
            latencies,
            calls,
            failed,
            first_error,
            audit,
            servers,
            actors_moved,
            done,
        })
    }

    /// Shows the run until its end; gives the latencies of its last part.
    async fn watch(&self, title: &str, cluster: &Embedded, load: &Load) -> Vec<Duration> {
        let mut view = View::new();
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        let mut recent: Vec<Vec<Duration>> = Vec::new();
        let mut last_part = Vec::new();
        while began.elapsed() < self.length {
            ticks.tick().await;
            let report = load.sample();
            if began.elapsed() > self.length - self.length / MEASURED_PART {
                last_part.extend_from_slice(&report.latencies);
            }
            recent.push(report.latencies.clone());
            if recent.len() > SAMPLES_SHOWN {
                recent.remove(0);
            }
            let mut shown = recent.concat();
            shown.sort_unstable();
            let span = SAMPLE_INTERVAL.as_secs_f64() * recent.len() as f64;
            let decisions: Vec<String> = cluster
                .decisions()
                .iter()
                .map(|decision| cluster.explain(decision))
                .collect();
            view.draw(&Frame {
                title,
                elapsed: began.elapsed(),
                length: self.length,
                servers: &servers(cluster),
                p50: metadata_server::percentile(&shown, 50.0),
                p99: metadata_server::percentile(&shown, 99.0),
                calls: report.calls,
                calls_per_second: shown.len() as f64 / span,
                failed: report.failed,
                decisions: &decisions,
            });
        }
        view.finish();
        last_part.sort_unstable();
        last_part
    }
}

fn servers(cluster: &Embedded) -> Vec<ServerRow> {
    let schema = cluster.app().schema();
    cluster
        .servers()
        .into_iter()
        .map(|server| {
            let reserved: Vec<String> = server.reserved_for.iter().map(|actor| schema.show(actor)).collect();
            let note = match (server.draining, reserved.is_empty()) {
                (true, _) => "is being emptied".into(),
                (false, true) => String::new(),
                (false, false) => format!("reserved for {}", reserved.join(", ")),
            };
            ServerRow {
                name: server.name,
                cpu_percent: server.cpu_percent,
                actors: server.actors,
                note,
            }
        })
        .collect()
}

/// The number of actors that a decision moved.
fn actors_moved(decision: &Decision) -> usize {
    match &decision.change {
        Change::Move { with, .. } => 1 + with.len(),
        _ => 0,
    }
}
