//! Runs the node's state machine for many threads. A thread with an event either drains the queue itself, or enqueues the event
//! for the thread that is draining it.
//!
//! INVARIANT: one thread at a time executes commands, in the order in which the state machine returned them. Executing a command
//! may produce new events on the same thread. These are queued, so that the executor is never reentered.
//!
//! A panic is a bug and may leave inconsistent state. The executor stops for good and notifies the [`CommandExecutor`], so that
//! other nodes take over from this node as if it had crashed.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use elastin_actor::ReplySender;
use elastin_protocol::{Command, Event, Node};
use elastin_types::{CallError, NotDelivered, Time};
use parking_lot::{Mutex, MutexGuard};

use crate::pending_calls::{Completions, DeferredWakes, PendingCalls};
use crate::transport::{AwaitedReply, FlushMode, Outbox};

/// The fewest callers completed together whose next calls are batched. A lone caller is fastest if it sends its call itself.
const BATCHED_CALLERS_MIN: usize = 2;

/// The most calls in a batch: a full batch is sent at once.
const BATCHED_CALLS_MAX: usize = 32;

/// The longest that a batch is delayed if other tasks keep the batching task from running.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(1);

/// A [`Node`] with its queue of events.
pub(crate) struct SerialExecutor {
    inputs: InputQueue,
    /// Whether callers enqueue their calls for the batching task instead of sending them.
    batches_calls: AtomicBool,
    /// The total of inputs at which every caller of the batch has sent its next call.
    batch_until: AtomicU64,
    /// The wakers of the batching task and its callers.
    deferred_wakes: DeferredWakes,
    node: Mutex<Worker>,
    /// Counts completions, so that a busy-polling caller sees that outcomes have arrived.
    completed: AtomicU64,
    /// The number of pending calls. Updated before their frames are flushed.
    waiting: AtomicUsize,
}

/// InputQueue that are queued for the draining thread.
#[derive(Default)]
struct InputQueue {
    queue: Mutex<Queue>,
    /// Whether the queue may have inputs: lets the draining thread skip the lock, because it is nearly always empty. Written
    /// under the lock.
    non_empty: AtomicBool,
}

#[derive(Default)]
struct Queue {
    inputs: VecDeque<Input>,
    /// The number of inputs removed so far.
    taken: u64,
}

impl InputQueue {
    /// Appends inputs, and returns the length of the queue.
    fn extend(&self, inputs: impl IntoIterator<Item = Input>) -> usize {
        let mut queue = self.queue.lock();
        queue.inputs.extend(inputs);
        self.non_empty.store(!queue.inputs.is_empty(), Ordering::Relaxed);
        queue.inputs.len()
    }

    fn len(&self) -> usize {
        self.queue.lock().inputs.len()
    }

    /// Whether the queue is empty. Takes the lock, so that a thread sees every input that it has enqueued.
    fn is_empty(&self) -> bool {
        self.queue.lock().inputs.is_empty()
    }

    /// The number of inputs enqueued so far.
    fn total(&self) -> u64 {
        let queue = self.queue.lock();
        queue.taken + queue.inputs.len() as u64
    }

    /// Moves all inputs into the empty `batch`. Returns false if there are none.
    fn take(&self, batch: &mut VecDeque<Input>) -> bool {
        if !self.non_empty.load(Ordering::Relaxed) {
            return false;
        }
        let mut queue = self.queue.lock();
        std::mem::swap(&mut queue.inputs, batch);
        queue.taken += batch.len() as u64;
        self.non_empty.store(false, Ordering::Relaxed);
        !batch.is_empty()
    }
}

/// An event for the state machine.
pub(crate) struct Input {
    event: Event,
    /// The caller that awaits the outcome, if the event is a call.
    caller: Option<ReplySender>,
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self { event, caller: None }
    }
}

impl Input {
    /// A message, and the caller that awaits its outcome.
    pub(crate) fn of_call(event: Event, caller: Option<ReplySender>) -> Self {
        Self { event, caller }
    }
}

// The buffers are reused between events, so that a message costs no allocation here.
struct Worker {
    node: Node,
    commands: Vec<Command>,
    /// Reused by [`SerialExecutor::drain_queue`].
    batch: VecDeque<Input>,
    context: CommandContext,
    /// Set by a panic: no more events are handled.
    stopped: bool,
}

/// Mutable state that the execution of commands shares.
#[derive(Default)]
pub(crate) struct CommandContext {
    /// Frames that are flushed once the queue is drained.
    pub(crate) outbox: Outbox,
    /// Events produced by commands. They are handled before any other.
    pub(crate) next: VecDeque<Event>,
    /// Local callers that await an outcome. They are completed after the executor's lock is released: they most likely send
    /// another call, and decoding a reply runs application code.
    pub(crate) pending_calls: PendingCalls,
}

impl CommandContext {
    /// The reply that the only pending call awaits.
    fn awaited_reply(&self) -> Option<AwaitedReply> {
        match self.pending_calls.len() {
            1 => self.outbox.awaited_reply(),
            _ => None,
        }
    }
}

/// The callers that a batch of events has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    None,
    One,
    /// Several, whose next calls are batched.
    Batched,
}

/// Executes the commands of the state machine.
pub(crate) trait CommandExecutor {
    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// Executes one command.
    fn execute(&self, command: Command, context: &mut CommandContext);

    /// A panic has stopped the executor for good.
    fn stopped(&self);

    /// Requests [`SerialExecutor::wake`] at this time.
    fn wake_at(&self, at: Option<Time>);
}

impl SerialExecutor {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            inputs: InputQueue::default(),
            batches_calls: AtomicBool::new(false),
            batch_until: AtomicU64::new(0),
            deferred_wakes: DeferredWakes::default(),
            node: Mutex::new(Worker {
                node,
                commands: Vec::new(),
                batch: VecDeque::new(),
                context: CommandContext::default(),
                stopped: false,
            }),
            completed: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Sends a message of a client. A client hosts no actors, so no local fast path could let a later message overtake this one,
    /// and it may be left to another thread. A lone caller busy-polls for its reply.
    pub(crate) fn send(&self, input: Input, executor: &impl CommandExecutor) {
        if self.batches_calls.load(Ordering::Relaxed) {
            return self.enqueue_batched(input, executor);
        }
        if input.caller.is_none() {
            return self.handle(input, executor);
        }
        let completed = self.completed.load(Ordering::Acquire);
        let awaited = self.handle_and_inspect(input, FlushMode::NowAwaited, executor, CommandContext::awaited_reply);
        if let Some(awaited) = awaited.flatten() {
            let is_done = || self.completed.load(Ordering::Acquire) != completed;
            awaited.busy_poll(is_done, || self.waiting.load(Ordering::SeqCst) == 0);
        }
    }

    /// Enqueues a call for the batching task.
    fn enqueue_batched(&self, input: Input, executor: &impl CommandExecutor) {
        let queued = self.inputs.extend([input]);
        // Checked again: the batching task clears the flag before it drains the queue for the last time.
        if queued >= BATCHED_CALLS_MAX || !self.batches_calls.load(Ordering::Relaxed) {
            self.catch_up_and_flush(executor);
        } else if queued == 1 {
            executor.wake_at(Some(executor.now() + BATCH_WAIT_MAX));
        }
    }

    /// Handles an event, or enqueues it if another thread is draining.
    pub(crate) fn handle(&self, input: Input, executor: &impl CommandExecutor) {
        self.handle_and_inspect(input, FlushMode::Coalesce, executor, |_| ());
    }

    /// Like [`SerialExecutor::handle`], and inspects the context afterwards. Returns none if another thread handles the event.
    fn handle_and_inspect<T>(
        &self,
        input: Input,
        flush_mode: FlushMode,
        executor: &impl CommandExecutor,
        inspect: impl FnOnce(&CommandContext) -> T,
    ) -> Option<T> {
        let inspected = match self.node.try_lock() {
            Some(worker) => {
                let (completions, inspected) = self.drain_and_inspect(worker, [input], flush_mode, executor, inspect);
                self.notify_callers(completions);
                Some(inspected)
            }
            None => {
                self.inputs.extend([input]);
                None
            }
        };
        self.apply_queued(executor);
        inspected
    }

    /// Handles several events, in order. The iterator is advanced while the executor is locked, so it must not read the executor.
    pub(crate) fn handle_all(&self, events: impl IntoIterator<Item = Event>, executor: &impl CommandExecutor) {
        let inputs = events.into_iter().map(Input::from);
        match self.node.try_lock() {
            Some(worker) => self.drain(worker, inputs, FlushMode::Coalesce, executor),
            None => {
                // Collected before the queue's lock is taken, which other threads need.
                let inputs: Vec<Input> = inputs.collect();
                self.inputs.extend(inputs);
            }
        }
        self.apply_queued(executor);
    }

    /// Like [`SerialExecutor::handle_all`], for a tokio `task` that can batch calls. If several callers are completed, their next
    /// calls are enqueued for it, and it must call [`SerialExecutor::apply_batched`] until that returns false.
    pub(crate) fn handle_all_and_batch(
        &self,
        events: impl IntoIterator<Item = Event>,
        task: &Waker,
        executor: &impl CommandExecutor,
    ) -> Completed {
        let inputs = events.into_iter().map(Input::from);
        // Waits for the lock: a thread that drains for this one would complete the callers without batching their next calls.
        let (completions, ()) = self.drain_and_inspect(self.node.lock(), inputs, FlushMode::Coalesce, executor, |_| ());
        let completed = match completions.len() {
            0 => Completed::None,
            1..BATCHED_CALLERS_MIN => Completed::One,
            BATCHED_CALLERS_MIN.. => Completed::Batched,
        };
        if completed == Completed::Batched {
            let until = self.inputs.total() + completions.len() as u64;
            self.batch_until.store(until, Ordering::Relaxed);
            self.batches_calls.store(true, Ordering::Relaxed);
            let now = executor.now();
            completions.notify_deferred(now, task, &self.deferred_wakes);
            executor.wake_at(Some(now + BATCH_WAIT_MAX));
            self.completed.fetch_add(1, Ordering::Release);
        } else {
            self.notify_callers(completions);
            self.apply_queued(executor);
        }
        completed
    }

    /// Handles the batched calls. Returns whether batching continues: it ends with an empty or complete batch, or without
    /// `keep_batching`.
    pub(crate) fn apply_batched(&self, keep_batching: bool, executor: &impl CommandExecutor) -> bool {
        let is_complete = || self.inputs.total() >= self.batch_until.load(Ordering::Relaxed);
        let batches_calls = keep_batching && self.inputs.non_empty.load(Ordering::Relaxed) && !is_complete();
        if batches_calls {
            let now = executor.now();
            self.deferred_wakes.clear_callers(now);
            executor.wake_at(Some(now + BATCH_WAIT_MAX));
            // Calls enqueued from now on belong to the next batch.
            if let Some(worker) = self.node.try_lock() {
                self.drain(worker, [], FlushMode::Now, executor);
            }
        } else {
            self.deferred_wakes.clear();
            self.batches_calls.store(false, Ordering::Relaxed);
            self.catch_up_and_flush(executor);
        }
        batches_calls
    }

    /// Handles due timers, and wakes the batching task and its callers if tokio has delayed them for too long.
    pub(crate) fn wake(&self, executor: &impl CommandExecutor) {
        self.handle(Event::Timer.into(), executor);
        if let Some(since) = self.deferred_wakes.wake_overdue(executor.now() - BATCH_WAIT_MAX) {
            executor.wake_at(Some(since + BATCH_WAIT_MAX));
        }
    }

    /// Handles inputs that other threads enqueued between this thread's last check of the queue and its release of the lock.
    fn apply_queued(&self, executor: &impl CommandExecutor) {
        while !self.inputs.is_empty() {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, [], FlushMode::Coalesce, executor);
        }
    }

    /// Enqueues an event without handling it, and returns the length of the queue. [`SerialExecutor::catch_up`] must follow.
    pub(crate) fn enqueue(&self, event: Event) -> usize {
        self.inputs.extend([event.into()])
    }

    /// Handles the queued inputs.
    pub(crate) fn catch_up(&self, executor: &impl CommandExecutor) {
        self.handle_all([], executor);
    }

    /// Like [`SerialExecutor::catch_up`], and flushes the resulting frames at once, because the caller has nothing to add.
    pub(crate) fn catch_up_and_flush(&self, executor: &impl CommandExecutor) {
        if let Some(worker) = self.node.try_lock() {
            self.drain(worker, [], FlushMode::Now, executor);
        }
        self.apply_queued(executor);
    }

    /// Handles a message before this returns. The sender resumes only when its message is ordered, so that none of its later
    /// messages overtakes it on the local fast path.
    pub(crate) fn handle_now(&self, input: Input, executor: &impl CommandExecutor) {
        if DRAINING.get() {
            self.inputs.extend([input]);
            return;
        }
        let worker = self.node.lock();
        self.drain(worker, [input], FlushMode::Coalesce, executor);
        if !self.inputs.is_empty() {
            self.catch_up(executor);
        }
    }

    /// The length of the queue.
    pub(crate) fn queued(&self) -> usize {
        self.inputs.len()
    }

    /// Reads the node between two events.
    pub(crate) fn read<T>(&self, executor: &impl CommandExecutor, read: impl FnOnce(&Node) -> T) -> T {
        let value = read(&self.node.lock().node);
        // Threads that found the lock taken have enqueued their events for this one.
        if !self.inputs.is_empty() {
            self.catch_up(executor);
        }
        value
    }

    /// Handles the queued inputs, then these, then those enqueued in the meantime.
    fn drain(
        &self,
        worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        flush_mode: FlushMode,
        executor: &impl CommandExecutor,
    ) {
        let (completions, ()) = self.drain_and_inspect(worker, inputs, flush_mode, executor, |_| ());
        self.notify_callers(completions);
    }

    /// Like [`SerialExecutor::drain`], and inspects the context afterwards. The caller must deliver the completions.
    fn drain_and_inspect<T>(
        &self,
        mut worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        flush_mode: FlushMode,
        executor: &impl CommandExecutor,
        inspect: impl FnOnce(&CommandContext) -> T,
    ) -> (Completions, T) {
        let draining = Draining::begin();
        self.drain_queue(&mut worker, executor);
        for input in inputs {
            worker.apply(input, executor);
        }
        self.drain_queue(&mut worker, executor);
        let waiting = worker.context.pending_calls.len();
        self.waiting.store(waiting, Ordering::SeqCst);
        worker.context.outbox.flush(match flush_mode {
            FlushMode::NowAwaited if waiting != 1 => FlushMode::Coalesce,
            flush_mode => flush_mode,
        });
        drop(draining);
        if !worker.stopped {
            executor.wake_at(worker.node.next_timer());
        }
        let completions = worker.context.pending_calls.take_completions();
        let inspected = inspect(&worker.context);
        (completions, inspected)
    }

    fn notify_callers(&self, completions: Completions) {
        if !completions.is_empty() {
            completions.notify();
            self.completed.fetch_add(1, Ordering::Release);
        }
    }

    fn drain_queue(&self, worker: &mut Worker, executor: &impl CommandExecutor) {
        let mut batch = std::mem::take(&mut worker.batch);
        let mut rounds = 0;
        // Taken as a whole, because executing a command may enqueue events.
        while self.inputs.take(&mut batch) {
            if rounds > 0 {
                // Other threads may keep the queue filled: callers must not wait until it is empty.
                self.notify_callers(worker.context.pending_calls.take_completions());
            }
            for input in batch.drain(..) {
                worker.apply(input, executor);
            }
            rounds += 1;
        }
        worker.batch = batch;
    }
}

impl Worker {
    /// Handles an event, and the events that its commands produce.
    fn apply(&mut self, input: Input, executor: &impl CommandExecutor) {
        let Input { event, caller } = input;
        if self.stopped {
            if let Some(caller) = caller {
                caller.complete(Err(CallError::NotDelivered(NotDelivered::Unreachable)));
            }
            return;
        }
        match (&event, caller) {
            (Event::Send { message }, Some(caller)) => self.context.pending_calls.insert(message.header.call, caller),
            (Event::GiveUp { call }, _) => self.context.pending_calls.complete(*call, Err(CallError::Cancelled)),
            _ => {}
        }
        self.apply_one(event, executor);
        while let Some(following) = self.context.next.pop_front() {
            self.apply_one(following, executor);
        }
    }

    fn apply_one(&mut self, event: Event, executor: &impl CommandExecutor) {
        tracing::trace!(?event, "handling");
        let Self {
            node,
            commands,
            context,
            ..
        } = self;
        let done = catch_unwind(AssertUnwindSafe(|| {
            node.handle(executor.now(), event, commands);
            for command in commands.drain(..) {
                tracing::trace!(?command, "executing");
                executor.execute(command, context);
            }
        }));
        if done.is_err() {
            self.stop(executor);
        }
    }

    #[cold]
    fn stop(&mut self, executor: &impl CommandExecutor) {
        self.stopped = true;
        self.context.next.clear();
        self.context.pending_calls.fail_all();
        executor.stopped();
    }
}

/// Marks this thread as draining until it is dropped, also by a panic.
struct Draining;

impl Draining {
    fn begin() -> Self {
        DRAINING.set(true);
        Self
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        DRAINING.set(false);
    }
}

thread_local! {
    /// Whether this thread is draining: messages that it sends are enqueued instead of handled.
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests;
