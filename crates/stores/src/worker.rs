//! The thread that a local store runs on: it takes all jobs that wait, at once, so that one commit serves them all.
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

/// How many jobs may wait. At some 100,000 jobs a second this is less than a second of work.
const QUEUE_JOBS_MAX: usize = 65_536;
/// How many bytes of payload may wait: a few states of the largest size.
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// What a worker does with its jobs.
pub(crate) trait Engine<Job>: Send + 'static {
    /// Does all these jobs, in order, and answers them. Also called without jobs when the wake-up time has come.
    fn run(&mut self, now: Time, jobs: Vec<Job>);

    /// When it wants to run although no job may have come.
    fn wake_at(&self) -> Option<Time>;
}

/// A thread with a queue of jobs before it. Dropping it does the jobs that wait, then ends the thread.
pub(crate) struct Worker<Job: Send + 'static> {
    shared: Arc<Shared<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<Job> {
    clock: Clock,
    queue: Mutex<Queue<Job>>,
    /// Tells the thread that there are jobs or that the queue is closed.
    work: Condvar,
}

struct Queue<Job> {
    jobs: Vec<Job>,
    bytes: usize,
    closed: bool,
    /// Until when the thread sleeps, if it does.
    asleep_until: Option<Time>,
}

/// Why a job was not taken. It comes back with the reason.
pub(crate) enum NotTaken<Job> {
    Full(Job),
    Closed(Job),
}

impl<Job: Send + 'static> Worker<Job> {
    /// Starts a thread with this name around an engine, whose time is that of the clock. If the system has no thread left, all
    /// jobs are refused as those of a worker that was closed.
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
                // If the engine panics, later jobs are refused instead of waiting for ever.
                let _close = CloseOnDrop(&shared);
                work(&shared, engine);
            }
        });
        let thread = match started {
            Ok(thread) => Some(thread),
            Err(error) => {
                tracing::error!(name, %error, "a store is closed: its thread could not be started");
                close(&shared);
                None
            }
        };
        Self { shared, thread }
    }

    /// Queues a job that carries so many bytes, unless too much waits already.
    pub(crate) fn push(&self, job: Job, bytes: usize) -> Result<(), NotTaken<Job>> {
        self.queue(job, bytes, |queue| {
            queue.jobs.len() < QUEUE_JOBS_MAX && (queue.bytes + bytes <= QUEUE_BYTES_MAX || queue.jobs.is_empty())
        })
    }

    /// A handle that can queue jobs of which there are only few, whatever waits. It does not keep the worker alive.
    pub(crate) fn side_door(&self) -> SideDoor<Job> {
        SideDoor(Arc::downgrade(&self.shared))
    }

    fn queue(&self, job: Job, bytes: usize, room: impl FnOnce(&Queue<Job>) -> bool) -> Result<(), NotTaken<Job>> {
        enqueue(&self.shared, job, bytes, room)
    }
}

fn enqueue<Job>(
    shared: &Shared<Job>,
    job: Job,
    bytes: usize,
    room: impl FnOnce(&Queue<Job>) -> bool,
) -> Result<(), NotTaken<Job>> {
    let mut queue = shared.queue.lock();
    if queue.closed {
        return Err(NotTaken::Closed(job));
    }
    if !room(&queue) {
        return Err(NotTaken::Full(job));
    }
    queue.jobs.push(job);
    queue.bytes += bytes;
    if queue.jobs.len() == 1 {
        shared.work.notify_one();
    }
    Ok(())
}

/// See [`Worker::side_door`].
pub(crate) struct SideDoor<Job>(std::sync::Weak<Shared<Job>>);

impl<Job> SideDoor<Job> {
    /// Queues a job; nothing happens if the worker is gone.
    pub(crate) fn push(&self, job: Job) {
        if let Some(shared) = self.0.upgrade() {
            // A closed queue drops the job: there is nothing left that it could concern.
            let _ = enqueue(&shared, job, 0, |_| true);
        }
    }
}

impl<Job: Send + 'static> Drop for Worker<Job> {
    fn drop(&mut self) {
        close(&self.shared);
        let Some(thread) = self.thread.take() else { return };
        // The last owner may be a callback on the worker's own thread, which can't wait for itself.
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a store's thread has panicked");
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

/// Takes all jobs as soon as there are some, or none when it is time to. `None` when the queue is closed and empty.
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
        // With the lock, so that the thread is not between a look at the clock and its sleep.
        let _queue = self.queue.lock();
        self.work.notify_one();
    }
}

/// Runs a caller's callback; its panic is its own and must not take the store down.
pub(crate) fn contain(callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the callback of a store request has panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Sends every batch on, then waits until the test lets it go on.
    struct Recorder {
        batches: mpsc::Sender<Vec<u32>>,
        go_on: mpsc::Receiver<()>,
    }

    impl Engine<u32> for Recorder {
        fn run(&mut self, _now: Time, jobs: Vec<u32>) {
            self.batches.send(jobs).unwrap();
            self.go_on.recv_timeout(Duration::from_secs(10)).unwrap();
        }

        fn wake_at(&self) -> Option<Time> {
            None
        }
    }

    #[test]
    fn jobs_that_wait_are_done_together_and_in_order() {
        let (batches, seen) = mpsc::channel();
        let (permit, go_on) = mpsc::channel();
        let worker = Worker::start("test", Clock::start(), Recorder { batches, go_on });
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
    fn too_many_bytes_are_refused_but_never_a_single_large_job() {
        let (batches, seen) = mpsc::channel();
        let (permit, go_on) = mpsc::channel();
        let worker = Worker::start("test", Clock::start(), Recorder { batches, go_on });
        worker.push(1, 0).ok().unwrap();
        seen.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(worker.push(2, QUEUE_BYTES_MAX + 1).is_ok());
        assert!(matches!(worker.push(3, 1), Err(NotTaken::Full(3))));
        permit.send(()).unwrap();
        permit.send(()).unwrap();
    }

    #[test]
    fn dropping_a_worker_does_what_waits() {
        let (batches, seen) = mpsc::channel();
        let (permit, go_on) = mpsc::channel();
        let worker = Worker::start("test", Clock::start(), Recorder { batches, go_on });
        worker.push(1, 0).ok().unwrap();
        seen.recv_timeout(Duration::from_secs(10)).unwrap();
        worker.push(2, 0).ok().unwrap();
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        drop(worker);
        assert_eq!(seen.try_recv().unwrap(), [2]);
    }

    #[test]
    fn without_a_thread_jobs_are_refused() {
        let (batches, _seen) = mpsc::channel();
        let (_permit, go_on) = mpsc::channel();
        // More than any machine has.
        let thread = thread::Builder::new().stack_size(1 << 60);
        let worker = Worker::start_as(thread, "test", Clock::start(), Recorder { batches, go_on });
        assert!(matches!(worker.push(1, 0), Err(NotTaken::Closed(1))));
    }
}
