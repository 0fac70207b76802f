//! Snapshots of a runtime, one per period.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::{ActorStats, ActorType, PerResource, Schema, ServerState, ServerStats, Time, Usage};

use crate::cell::report::{Load, Period};
use crate::inner::RuntimeInner;
use crate::profile::TypeTotals;
use crate::scheduler::cpu_clock;
use crate::{Interest, NodeSnapshot, Remote};

/// The periods between snapshots.
pub(crate) struct Periods {
    /// How many there were, including the current one.
    number: u32,
    /// When the current one began, and the CPU time used by then.
    began: Time,
    cpu: Duration,
    totals: BTreeMap<ActorType, Load>,
}

impl Periods {
    pub(crate) fn begin(now: Time, remote: &dyn Remote) -> Self {
        Self {
            number: 1,
            began: now,
            cpu: used_cpu(remote),
            totals: BTreeMap::new(),
        }
    }

    /// Ends the period.
    pub(crate) fn end(&mut self, runtime: &RuntimeInner, interest: &Interest) -> NodeSnapshot {
        let (now, cpu) = (runtime.clock.now(), used_cpu(&*runtime.remote));
        let length = now.since(self.began).max(Duration::from_nanos(1));
        let period = Period {
            number: self.number,
            seconds: length.as_secs_f64(),
        };
        let (mut actors, load) = self.collect_reports(runtime, interest, period);
        let used = cpu.saturating_sub(self.cpu);
        if load.busy > used {
            // Turns are timed by the monotonic clock, which also advances while the thread is preempted.
            let ratio = used.as_secs_f64() / load.busy.as_secs_f64();
            actors.iter_mut().for_each(|actor| actor.used.cpu *= ratio);
        }
        // Never 0, which stands for no period.
        self.number = self.number.checked_add(1).unwrap_or(1);
        (self.began, self.cpu) = (now, cpu);
        NodeSnapshot {
            period: length,
            server: server(runtime, &actors, used, load, length),
            mailbox_messages: load.backlog,
            actors,
        }
    }

    /// Sums the load of all actors and collects the reports of those of interest.
    fn collect_reports(
        &mut self,
        runtime: &RuntimeInner,
        interest: &Interest,
        period: Period,
    ) -> (Vec<ActorStats>, Load) {
        let mut actors = Vec::new();
        let mut sum = Load::default();
        for cell in runtime.active.drain().iter().filter_map(|cell| cell.upgrade()) {
            let kind = cell.id().kind;
            let Some((stats, load)) = cell.report(interest.covers(kind), period) else {
                continue;
            };
            actors.extend(stats);
            sum.add(load);
            self.totals.entry(kind).or_default().add(load);
        }
        if interest.lists_idle() {
            runtime.registry.each(|cell| {
                if interest.covers_idle(cell.id().kind) {
                    actors.extend(cell.report_idle(period));
                }
            });
        }
        (actors, sum)
    }

    /// Totals per actor type over all periods that have ended.
    pub(crate) fn totals(&self, schema: &Schema) -> Vec<TypeTotals> {
        let total = |(kind, load): (&ActorType, &Load)| {
            Some(TypeTotals {
                name: schema.actor_of(*kind)?.name.clone(),
                turns: load.turns,
                busy: load.busy,
            })
        };
        self.totals.iter().filter_map(total).collect()
    }
}

/// CPU time that this process has used, without busy-polling.
fn used_cpu(remote: &dyn Remote) -> Duration {
    cpu_clock::process_cpu().saturating_sub(remote.busy_poll_time())
}

impl Load {
    fn add(&mut self, other: Load) {
        self.turns += other.turns;
        self.busy += other.busy;
        self.backlog += other.backlog;
    }
}

fn server(runtime: &RuntimeInner, actors: &[ActorStats], used: Duration, load: Load, period: Duration) -> ServerStats {
    let used_ms = used.as_secs_f64() * 1000.0;
    let per_turn_ms = if load.turns > 0 {
        used_ms / load.turns as f64
    } else {
        0.0
    };
    let per_second = 1.0 / period.as_secs_f64();
    let cores = runtime.scheduler.cpu_quota.cores().unwrap_or_else(cores);
    ServerStats {
        node: runtime.settings.node,
        state: ServerState::Active,
        usage: PerResource {
            cpu: Usage {
                used: used_ms * per_second,
                capacity: Some(cores * 1000.0),
            },
            mem: Usage {
                used: actors.iter().map(|actor| actor.used.mem).sum(),
                capacity: None,
            },
            net: Usage::default(),
        },
        cpu_demand: (used_ms + load.backlog as f64 * per_turn_ms) * per_second,
        actors: runtime.activations.load(std::sync::atomic::Ordering::Relaxed),
    }
}

/// How many cores this process may use.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}
