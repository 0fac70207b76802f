//! The thread of a local store. It takes all queued jobs at once, so that one commit covers them all.
//!
//! ```text
//!   submit ──► queue (bounded) ──► thread: take all ─► Engine::run ─► one commit ─► every `done`
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use elastin_clock::{Clock, Sleeps};
use elastin_types::Time;
use parking_lot::{Condvar, Mutex};

/// The most queued jobs: less than a second of work.
const QUEUE_JOBS_MAX: usize = 65_536;
/// The most queued bytes of payload: a few states of the largest size.
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// Executes the jobs of a worker.
pub(crate) trait Engine<Job>: Send + 'static {
    /// Executes all these jobs in order and completes them. Called without jobs when [`Engine::wake_at`] has come.
    fn run(&mut self, now: Time, jobs: Vec<Job>);

    /// When to run even if no job arrives.
    fn wake_at(&self) -> Option<Time>;
}

/// A thread with a bounded job queue. Dropping it executes the queued jobs, then ends the thread.
pub(crate) struct Worker<Job: Send + 'static> {
    shared: Arc<Shared<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<Job> {
    clock: Clock,
    queue: Mutex<Queue<Job>>,
    /// Notifies the thread that there are jobs or that the queue is closed.
    work: Condvar,
}

struct Queue<Job> {
    jobs: Vec<Job>,
    bytes: usize,
    closed: bool,
    /// Until when the thread sleeps, if it does.
    asleep_until: Option<Time>,
}

/// The reason why a job was rejected, with the job.
pub(crate) enum PushError<Job> {
    Full(Job),
    Closed(Job),
}

impl<Job: Send + 'static> Worker<Job> {
    /// Starts a thread of this name that runs an engine on the time of the clock. If no thread can be started, the
    /// worker rejects all jobs as closed.
    pub(crate) fn start(name: &str, clock: Clock, engine: impl Engine<Job>) -> Self {
        Self::start_as(thread::Builder::new(), name, clock, engine)
    }

    fn start_as(thread: thread::Builder, name: &str, clock: Clock, engine: impl Engine<Job>) -> Self {
        let shared = Arc::new(Shared {
            clock,
            queue: Mutex::new(Queue {
                jobs: Vec::new(),
                bytes: 0,
                closed: false,
                asleep_until: None,
            }),
            work: Condvar::new(),
        });
        let weak: Weak<Shared<Job>> = Arc::downgrade(&shared);
        shared.clock.register(name, weak);
        let started = thread.name(name.to_owned()).spawn({
            let shared = shared.clone();
            move || {
                // After a panic of the engine, later jobs are rejected instead of waiting forever.
                let _close = CloseOnDrop(&shared);
                work(&shared, engine);
            }
        });
        let thread = match started {
            Ok(thread) => Some(thread),
            Err(error) => {
                tracing::error!(name, %error, "closing the store: failed to start its thread");
                close(&shared);
                None
            }
        };
        Self { shared, thread }
    }

    /// Enqueues a job with a payload of this many bytes, unless the queue is full.
    pub(crate) fn push(&self, job: Job, bytes: usize) -> Result<(), PushError<Job>> {
        self.queue(job, bytes, |queue| {
            queue.jobs.len() < QUEUE_JOBS_MAX && (queue.bytes + bytes <= QUEUE_BYTES_MAX || queue.jobs.is_empty())
        })
    }

    /// A handle that enqueues jobs regardless of the queue's bounds, for rare jobs. It does not keep the worker alive.
    pub(crate) fn unbounded_handle(&self) -> UnboundedHandle<Job> {
        UnboundedHandle(Arc::downgrade(&self.shared))
    }

    fn queue(&self, job: Job, bytes: usize, room: impl FnOnce(&Queue<Job>) -> bool) -> Result<(), PushError<Job>> {
        enqueue(&self.shared, job, bytes, room)
    }
}

fn enqueue<Job>(
    shared: &Shared<Job>,
    job: Job,
    bytes: usize,
    room: impl FnOnce(&Queue<Job>) -> bool,
) -> Result<(), PushError<Job>> {
    let mut queue = shared.queue.lock();
    if queue.closed {
        return Err(PushError::Closed(job));
    }
    if !room(&queue) {
        return Err(PushError::Full(job));
    }
    queue.jobs.push(job);
    queue.bytes += bytes;
    if queue.jobs.len() == 1 {
        shared.work.notify_one();
    }
    Ok(())
}

/// Handle returned by [`Worker::unbounded_handle`].
pub(crate) struct UnboundedHandle<Job>(std::sync::Weak<Shared<Job>>);

impl<Job> UnboundedHandle<Job> {
    /// Enqueues a job; does nothing if the worker is gone.
    pub(crate) fn push(&self, job: Job) {
        if let Some(shared) = self.0.upgrade() {
            // A closed queue drops the job: nothing is left for it to act on.
            let _ = enqueue(&shared, job, 0, |_| true);
        }
    }
}

impl<Job: Send + 'static> Drop for Worker<Job> {
    fn drop(&mut self) {
        close(&self.shared);
        let Some(thread) = self.thread.take() else { return };
        // The last owner may be a callback on the worker's own thread, which can't join itself.
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a store's thread panicked");
        }
    }
}

struct CloseOnDrop<'a, Job>(&'a Shared<Job>);

impl<Job> Drop for CloseOnDrop<'_, Job> {
    fn drop(&mut self) {
        close(self.0);
    }
}

fn close<Job>(shared: &Shared<Job>) {
    shared.queue.lock().closed = true;
    shared.work.notify_one();
}

fn work<Job>(shared: &Shared<Job>, mut engine: impl Engine<Job>) {
    loop {
        let Some(jobs) = take(shared, engine.wake_at()) else {
            return;
        };
        engine.run(shared.clock.now(), jobs);
    }
}

/// Takes all jobs once there are any, or none when it is time to wake. `None` when the queue is closed and empty.
fn take<Job>(shared: &Shared<Job>, wake_at: Option<Time>) -> Option<Vec<Job>> {
    let mut queue = shared.queue.lock();
    while queue.jobs.is_empty() {
        if queue.closed {
            return None;
        }
        let left = wake_at.map(|at| at.since(shared.clock.now()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        queue.asleep_until = Some(wake_at.unwrap_or(Time(u64::MAX)));
        shared.clock.note_sleep();
        match left {
            None => shared.work.wait(&mut queue),
            Some(left) => drop(shared.work.wait_for(&mut queue, left)),
        }
        queue.asleep_until = None;
    }
    queue.bytes = 0;
    Some(std::mem::take(&mut queue.jobs))
}

impl<Job: Send> Sleeps for Shared<Job> {
    fn asleep_until(&self) -> Option<Time> {
        let queue = self.queue.lock();
        match queue.closed {
            true => Some(Time(u64::MAX)),
            false => queue.asleep_until.filter(|_| queue.jobs.is_empty()),
        }
    }

    fn wake(&self) {
        // Under the lock, so that the thread is not between reading the clock and sleeping.
        let _queue = self.queue.lock();
        self.work.notify_one();
    }
}

/// Runs a caller's callback. Its panic must not stop the store.
pub(crate) fn contain(callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the callback of a store request panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Reports every batch, then blocks until the test permits it to continue.
    struct Recorder {
        batches: mpsc::Sender<Vec<u32>>,
        permits: mpsc::Receiver<()>,
    }

    impl Engine<u32> for Recorder {
        fn run(&mut self, _now: Time, jobs: Vec<u32>) {
            self.batches.send(jobs).unwrap();
            self.permits.recv_timeout(Duration::from_secs(10)).unwrap();
        }

        fn wake_at(&self) -> Option<Time> {
            None
        }
    }

    #[test]
    fn queued_jobs_run_in_one_batch_and_in_order() {
        let (batches, seen) = mpsc::channel();
        let (permit, permits) = mpsc::channel();
        let worker = Worker::start("test", Clock::start(), Recorder { batches, permits });
        worker.push(1, 0).ok().unwrap();
        assert_eq!(seen.recv_timeout(Duration::from_secs(10)).unwrap(), [1]);
        for job in 2..5 {
            worker.push(job, 0).ok().unwrap();
        }
        permit.send(()).unwrap();
        assert_eq!(seen.recv_timeout(Duration::from_secs(10)).unwrap(), [2, 3, 4]);
        permit.send(()).unwrap();
    }

    #[test]
    fn excess_bytes_are_rejected_but_never_a_single_large_job() {
        let (batches, seen) = mpsc::channel();
        let (permit, permits) = mpsc::channel();
        let worker = Worker::start("test", Clock::start(), Recorder { batches, permits });
        worker.push(1, 0).ok().unwrap();
        seen.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(worker.push(2, QUEUE_BYTES_MAX + 1).is_ok());
        assert!(matches!(worker.push(3, 1), Err(PushError::Full(3))));
        permit.send(()).unwrap();
        permit.send(()).unwrap();
    }

    #[test]
    fn dropping_a_worker_runs_the_queued_jobs() {
        let (batches, seen) = mpsc::channel();
        let (permit, permits) = mpsc::channel();
        let worker = Worker::start("test", Clock::start(), Recorder { batches, permits });
        worker.push(1, 0).ok().unwrap();
        seen.recv_timeout(Duration::from_secs(10)).unwrap();
        worker.push(2, 0).ok().unwrap();
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        drop(worker);
        assert_eq!(seen.try_recv().unwrap(), [2]);
    }

    #[test]
    fn without_a_thread_jobs_are_rejected() {
        let (batches, _seen) = mpsc::channel();
        let (_permit, permits) = mpsc::channel();
        // More than any machine has.
        let thread = thread::Builder::new().stack_size(1 << 60);
        let worker = Worker::start_as(thread, "test", Clock::start(), Recorder { batches, permits });
        assert!(matches!(worker.push(1, 0), Err(PushError::Closed(1))));
    }
}
