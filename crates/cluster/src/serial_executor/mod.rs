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
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use elastin_actor::ReplySender;
use elastin_protocol::{Command, Event, Node};
use elastin_types::{CallError, NotDelivered, Time};
use parking_lot::{Mutex, MutexGuard};

use crate::outbox::Outbox;
use crate::pending_calls::{Completions, PendingCalls};
use crate::transport::FlushMode;

/// A [`Node`] with its queue of events.
pub(crate) struct SerialExecutor {
    inputs: InputQueue,
    node: Mutex<Worker>,
    /// Counts the batches of completions whose callers were notified.
    notified: AtomicU64,
    /// The number of pending calls. Updated before their frames are flushed.
    pending: AtomicUsize,
}

/// Inputs that are queued for the draining thread.
#[derive(Default)]
struct InputQueue(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    inputs: VecDeque<Input>,
    /// The number of inputs removed so far.
    taken: u64,
}

impl InputQueue {
    /// Appends inputs, and returns the length of the queue.
    fn extend(&self, inputs: impl IntoIterator<Item = Input>) -> usize {
        let mut queue = self.0.lock();
        queue.inputs.extend(inputs);
        queue.inputs.len()
    }

    fn len(&self) -> usize {
        self.0.lock().inputs.len()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().inputs.is_empty()
    }

    /// The number of inputs enqueued so far.
    fn total(&self) -> u64 {
        let queue = self.0.lock();
        queue.taken + queue.inputs.len() as u64
    }

    /// Moves all inputs into the empty `batch`. Returns false if there are none.
    fn take(&self, batch: &mut VecDeque<Input>) -> bool {
        let mut queue = self.0.lock();
        std::mem::swap(&mut queue.inputs, batch);
        queue.taken += batch.len() as u64;
        !batch.is_empty()
    }
}

/// An event for the state machine.
pub(crate) struct Input {
    event: Event,
    /// The caller that awaits the outcome, if the event is a call.
    pub(crate) caller: Option<ReplySender>,
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
    /// Flushes the outbox. More frames may follow.
    fn coalesce(&mut self) {
        self.outbox.flush(FlushMode::Coalesce);
    }

    /// Flushes the outbox. No more frames follow for now.
    fn flush_now(&mut self) {
        self.outbox.flush(FlushMode::Now);
    }
}

/// Executes the commands of the state machine.
pub(crate) trait CommandExecutor {
    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// Executes one command.
    fn execute(&self, command: Command, context: &mut CommandContext);

    /// A panic has stopped the executor for good.
    fn stopped(&self);

    /// Requests an [`Event::Timer`] at this time.
    fn wake_at(&self, at: Option<Time>);
}

impl SerialExecutor {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            inputs: InputQueue::default(),
            node: Mutex::new(Worker {
                node,
                commands: Vec::new(),
                batch: VecDeque::new(),
                context: CommandContext::default(),
                stopped: false,
            }),
            notified: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
        }
    }

    /// Handles an event, or enqueues it if another thread is draining.
    pub(crate) fn handle(&self, input: Input, executor: &impl CommandExecutor) {
        self.handle_and(input, executor, CommandContext::coalesce);
    }

    /// Like [`SerialExecutor::handle`], with a choice how to `flush`. Returns none if another thread handles the event.
    pub(crate) fn handle_and<T>(
        &self,
        input: Input,
        executor: &impl CommandExecutor,
        flush: impl FnOnce(&mut CommandContext) -> T,
    ) -> Option<T> {
        let flushed = match self.node.try_lock() {
            Some(worker) => {
                let (completions, flushed) = self.drain_and(worker, [input], executor, flush);
                self.notify(completions, Completions::notify);
                Some(flushed)
            }
            None => {
                self.inputs.extend([input]);
                None
            }
        };
        self.apply_queued(executor);
        flushed
    }

    /// Handles several events, in order. The iterator is advanced while the executor is locked, so it must not read the executor.
    pub(crate) fn handle_all(&self, events: impl IntoIterator<Item = Event>, executor: &impl CommandExecutor) {
        let inputs = events.into_iter().map(Input::from);
        match self.node.try_lock() {
            Some(worker) => self.drain(worker, inputs, executor, CommandContext::coalesce),
            None => {
                // Collected before the queue's lock is taken, which other threads need.
                let inputs: Vec<Input> = inputs.collect();
                self.inputs.extend(inputs);
            }
        }
        self.apply_queued(executor);
    }

    /// Like [`SerialExecutor::handle_all`], but waits for its turn and leaves [`notify`](SerialExecutor::notify) and
    /// [`catch_up`](SerialExecutor::catch_up) to the caller.
    pub(crate) fn handle_all_silently(
        &self,
        events: impl IntoIterator<Item = Event>,
        executor: &impl CommandExecutor,
    ) -> Completions {
        let inputs = events.into_iter().map(Input::from);
        self.drain_and(self.node.lock(), inputs, executor, CommandContext::coalesce)
            .0
    }

    /// Notifies the callers of completed calls.
    pub(crate) fn notify(&self, completions: Completions, notify: impl FnOnce(Completions)) {
        if !completions.is_empty() {
            notify(completions);
            self.notified.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts the batches of completions whose callers were notified.
    pub(crate) fn notified(&self) -> u64 {
        self.notified.load(Ordering::Acquire)
    }

    /// The number of pending calls.
    pub(crate) fn pending_calls(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Handles inputs that other threads enqueued between this thread's last check of the queue and its release of the lock.
    fn apply_queued(&self, executor: &impl CommandExecutor) {
        while !self.inputs.is_empty() {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, [], executor, CommandContext::coalesce);
        }
    }

    /// Enqueues an event without handling it, and returns the length of the queue. [`SerialExecutor::catch_up`] must follow.
    pub(crate) fn enqueue(&self, input: Input) -> usize {
        self.inputs.extend([input])
    }

    /// Handles the queued inputs.
    pub(crate) fn catch_up(&self, executor: &impl CommandExecutor) {
        self.handle_all([], executor);
    }

    /// Like [`SerialExecutor::catch_up`], and flushes the resulting frames at once, because the caller has nothing to add.
    pub(crate) fn catch_up_and_flush(&self, executor: &impl CommandExecutor) {
        self.flush_queued(executor);
        self.apply_queued(executor);
    }

    /// Handles the inputs queued so far unless another thread is draining, and flushes the resulting frames at once.
    pub(crate) fn flush_queued(&self, executor: &impl CommandExecutor) {
        if let Some(worker) = self.node.try_lock() {
            self.drain(worker, [], executor, CommandContext::flush_now);
        }
    }

    /// Handles a message before this returns. The sender resumes only when its message is ordered, so that none of its later
    /// messages overtakes it on the local fast path.
    pub(crate) fn handle_now(&self, input: Input, executor: &impl CommandExecutor) {
        if DRAINING.get() {
            self.inputs.extend([input]);
            return;
        }
        let worker = self.node.lock();
        self.drain(worker, [input], executor, CommandContext::coalesce);
        if !self.inputs.is_empty() {
            self.catch_up(executor);
        }
    }

    /// The length of the queue.
    pub(crate) fn queued(&self) -> usize {
        self.inputs.len()
    }

    /// The number of inputs enqueued so far.
    pub(crate) fn enqueued(&self) -> u64 {
        self.inputs.total()
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
        executor: &impl CommandExecutor,
        flush: impl FnOnce(&mut CommandContext),
    ) {
        let (completions, ()) = self.drain_and(worker, inputs, executor, flush);
        self.notify(completions, Completions::notify);
    }

    /// Like [`SerialExecutor::drain`], but leaves [`notify`](SerialExecutor::notify) to the caller.
    fn drain_and<T>(
        &self,
        mut worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        executor: &impl CommandExecutor,
        flush: impl FnOnce(&mut CommandContext) -> T,
    ) -> (Completions, T) {
        let draining = Draining::begin();
        self.drain_queue(&mut worker, executor);
        for input in inputs {
            worker.apply(input, executor);
        }
        self.drain_queue(&mut worker, executor);
        self.pending.store(worker.context.pending_calls.len(), Ordering::SeqCst);
        let flushed = flush(&mut worker.context);
        drop(draining);
        if !worker.stopped {
            executor.wake_at(worker.node.next_timer());
        }
        (worker.context.pending_calls.take_completions(), flushed)
    }

    fn drain_queue(&self, worker: &mut Worker, executor: &impl CommandExecutor) {
        let mut batch = std::mem::take(&mut worker.batch);
        let mut rounds = 0;
        // Taken as a whole, because executing a command may enqueue events.
        while self.inputs.take(&mut batch) {
            if rounds > 0 {
                // Other threads may keep the queue filled: callers must not wait until it is empty.
                self.notify(worker.context.pending_calls.take_completions(), Completions::notify);
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
pub(crate) mod tests;
