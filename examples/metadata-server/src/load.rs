//! The clients of the experiment: each opens folders one after another, half of the time the hot one.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elastin::Client;
use elastin::prelude::*;
use tokio::task::JoinSet;

use crate::{Audit, Folder};

/// The size of the experiment; the default is the paper's (section 5.3).
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of folders.
    pub folders: u64,
    /// The number of files in each folder.
    pub files: u32,
    /// The number of clients that open them.
    pub clients: u32,
    /// The share of requests that go to the first folder, in percent; the others share the rest evenly.
    pub hot_percent: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            folders: 4,
            files: 8,
            clients: 16,
            hot_percent: 50,
        }
    }
}

/// The deadline of a call.
const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// Running clients.
pub struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    folders: Vec<Ref<Folder>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    measured: Mutex<Measured>,
}

#[derive(Default)]
struct Measured {
    window: Vec<Duration>,
    calls: u64,
    failed: u64,
    first_error: Option<String>,
}

/// Results of the clients.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Calls that were answered or failed.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The error of the first failed call.
    pub first_error: Option<String>,
    /// The latencies since the last sample, sorted.
    pub latencies: Vec<Duration>,
}

impl LoadReport {
    /// The latency that `percent` of the calls stayed within.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        percentile(&self.latencies, percent)
    }
}

/// The value that `percent` of the sorted values stay within.
pub fn percentile(sorted: &[Duration], percent: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(last)).copied()
}

impl Load {
    /// Creates the folders and their files, and starts the clients. The tasks share these clients round robin.
    pub async fn start(clients: &[Client], shape: Shape) -> Result<Load, CallError> {
        let first = clients.first().expect("a load needs a client");
        let folders: Vec<_> = (0..shape.folders).map(|folder| first.actor::<Folder>(folder)).collect();
        for (number, folder) in folders.iter().enumerate() {
            folder.fill(number as u64, shape.files).deadline(CALL_DEADLINE).await?;
        }
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for number in 0..shape.clients {
            let client = &clients[number as usize % clients.len()];
            let folders = (0..shape.folders)
                .map(|folder| client.actor::<Folder>(folder))
                .collect();
            tasks.spawn(open_folders(number, folders, shape, Arc::clone(&shared)));
        }
        Ok(Load { shared, tasks, folders })
    }

    /// The results so far, with the latencies since the last sample.
    pub fn sample(&self) -> LoadReport {
        let mut measured = self
            .shared
            .measured
            .lock()
            .expect("no client panics while it records a call");
        let mut latencies = std::mem::take(&mut measured.window);
        latencies.sort_unstable();
        LoadReport {
            calls: measured.calls,
            failed: measured.failed,
            first_error: measured.first_error.clone(),
            latencies,
        }
    }

    /// Lets every client finish its last call, and reads the totals of the folders.
    pub async fn finish(mut self) -> Result<(LoadReport, Audit), CallError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        let mut total = Audit::default();
        for folder in &self.folders {
            let audit = folder.audit().deadline(CALL_DEADLINE).await?;
            total.opened += audit.opened;
            total.out_of_order += audit.out_of_order;
        }
        Ok((self.sample(), total))
    }
}

async fn open_folders(client: u32, folders: Vec<Ref<Folder>>, shape: Shape, shared: Arc<Shared>) {
    let mut choice = Choice(u64::from(client) + 1);
    let mut request = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let cold = shape.folders.saturating_sub(1).max(1);
        let hot = choice.below(100) < u64::from(shape.hot_percent) || shape.folders == 1;
        let folder = &folders[if hot { 0 } else { 1 + choice.below(cold) as usize }];
        let file = choice.below(u64::from(shape.files)) as u32;
        request += 1;
        // One-way, so that two requests of one client are in flight at once and could overtake each other.
        let glanced = folder.glance(client, request).tell().await;
        request += 1;
        let began = Instant::now();
        let opened = folder.open(client, request, file).deadline(CALL_DEADLINE).await;
        let took = began.elapsed();
        let error = match (glanced, opened) {
            (Err(error), _) => Some(error.to_string()),
            (_, Err(error)) => Some(error.to_string()),
            (Ok(()), Ok(_)) => None,
        };
        let mut measured = shared
            .measured
            .lock()
            .expect("no client panics while it records a call");
        measured.calls += 1;
        match error {
            None => measured.window.push(took),
            Some(error) => {
                measured.failed += 1;
                measured.first_error.get_or_insert(error);
            }
        }
    }
}

/// A small generator of choices (SplitMix64): the same clients make the same choices in every run.
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_sorted_values() {
        let values: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50.0), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&values, 99.0), Some(Duration::from_millis(99)));
        assert_eq!(percentile(&values, 100.0), Some(Duration::from_millis(100)));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn half_of_the_choices_are_hot() {
        let mut choice = Choice(1);
        let hot = (0..10_000).filter(|_| choice.below(100) < 50).count();
        assert!((4_700..5_300).contains(&hot), "{hot}");
    }
}
