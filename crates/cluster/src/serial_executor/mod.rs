//! Runs a state executor for many threads: whoever brings an event either drains the queue or leaves it to the thread
//! that does.
//!
//! INVARIANT: commands are carried out in the order in which the executor gave them, by one thread at a time. Carrying one
//! out may bring new events on the same thread: they wait in the queue, so nothing here is entered twice.
//!
//! A panic is a bug, and what it leaves behind may be wrong: the executor stops for good and tells the [`CommandExecutor`], so that others take
//! over from this node as if it had crashed.

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
use crate::transport::{FlushMode, NowAwaited, Outbox};

/// So many callers who receive of outcomes together are worth waiting for. One alone is quickest if it does everything itself.
const BATCHED_CALLERS_MIN: usize = 2;

/// What callers have left is not kept waiting if it is so much.
const BATCHED_CALLS_MAX: usize = 32;

/// Nor for longer than this, if whoever is to come for it is held up by what else its thread has to do.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(1);

/// A [`Node`] with the events that wait for it.
pub(crate) struct SerialExecutor {
    inputs: Inputs,
    /// Somebody is about to come for what callers send: they leave it.
    batches_calls: AtomicBool,
    /// So many inputs will have been left when everybody who was completed so has sent something.
    batch_until: AtomicU64,
    /// Who was completed so.
    deferred_wakes: DeferredWakes,
    node: Mutex<Worker>,
    /// How often callers heard of outcomes.
    completed: AtomicU64,
    /// How many callers wait for one. Set before what they send leaves.
    waiting: AtomicUsize,
}

/// What waits for the thread that runs the executor.
#[derive(Default)]
struct Inputs {
    queue: Mutex<Queue>,
    /// Whether there are any, for those who look again before they go: nearly always there are none, and no lock is needed. Set with
    /// the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Queue {
    inputs: VecDeque<Input>,
    /// How many were ever taken out.
    taken: u64,
}

impl Inputs {
    /// Appends some, and says how many there are.
    fn extend(&self, inputs: impl IntoIterator<Item = Input>) -> usize {
        let mut queue = self.queue.lock();
        queue.inputs.extend(inputs);
        self.any.store(!queue.inputs.is_empty(), Ordering::Relaxed);
        queue.inputs.len()
    }

    fn len(&self) -> usize {
        self.queue.lock().inputs.len()
    }

    /// Whether there are none for certain. Whoever has left one before this sees it.
    fn is_empty(&self) -> bool {
        self.queue.lock().inputs.is_empty()
    }

    /// How many there were ever.
    fn ever(&self) -> u64 {
        let queue = self.queue.lock();
        queue.taken + queue.inputs.len() as u64
    }

    /// Takes all that this thread knows of, into an empty queue that is given for it. False if there are none.
    fn take(&self, batch: &mut VecDeque<Input>) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut queue = self.queue.lock();
        std::mem::swap(&mut queue.inputs, batch);
        queue.taken += batch.len() as u64;
        self.any.store(false, Ordering::Relaxed);
        !batch.is_empty()
    }
}

/// What the executor takes in.
pub(crate) struct Input {
    event: Event,
    /// Who waits for the outcome, if the event is a call.
    caller: Option<ReplySender>,
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self { event, caller: None }
    }
}

impl Input {
    /// A message, and who waits for its outcome.
    pub(crate) fn of_call(event: Event, caller: Option<ReplySender>) -> Self {
        Self { event, caller }
    }
}

// The queues are kept between events, so that a message costs no allocation here.
struct Worker {
    node: Node,
    commands: Vec<Command>,
    /// Room for inputs that are taken from those that wait, all at once.
    batch: VecDeque<Input>,
    context: CommandContext,
    /// A panic came of something: nothing is taken in any more.
    stopped: bool,
}

/// What whoever carries out commands has at hand.
#[derive(Default)]
pub(crate) struct CommandContext {
    /// Frames that leave when there is nothing more to take in.
    pub(crate) outbox: Outbox,
    /// Events that came of carrying out a command: they happen before any other.
    pub(crate) next: VecDeque<Event>,
    /// PendingCalls here that wait for an outcome. They receive of it when the executor is free again, because they most likely have
    /// more for it, and what decodes a reply is the application's.
    pub(crate) callers: PendingCalls,
}

impl CommandContext {
    /// Where the outcome comes from that somebody waits for, if only one does.
    fn awaited(&self) -> Option<NowAwaited> {
        match self.callers.waiting() {
            1 => self.outbox.awaited(),
            _ => None,
        }
    }
}

/// Who has heard of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    None,
    One,
    /// They leave what they send.
    Many,
}

/// Carries out commands.
pub(crate) trait CommandExecutor {
    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// Carries out one command.
    fn execute(&self, command: Command, context: &mut CommandContext);

    /// A panic came of something, and the executor has stopped for good.
    fn stopped(&self);

    /// The executor wants to be woken at this time.
    fn wake_at(&self, at: Option<Time>);
}

impl SerialExecutor {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            inputs: Inputs::default(),
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

    /// Lets the executor take in what a client sends: where no actor ever is there is no shorter way on which something that is
    /// sent later could overtake it, so it may be left to others. A caller that waits alone looks for its reply for a moment.
    pub(crate) fn send(&self, input: Input, executor: &impl CommandExecutor) {
        if self.batches_calls.load(Ordering::Relaxed) {
            return self.start_batch(input, executor);
        }
        if input.caller.is_none() {
            return self.handle(input, executor);
        }
        let completed = self.completed.load(Ordering::Acquire);
        let awaited = self.handle_and(input, FlushMode::NowAwaited, executor, CommandContext::awaited);
        if let Some(awaited) = awaited.flatten() {
            let is_there = || self.completed.load(Ordering::Acquire) != completed;
            awaited.busy_poll(is_there, || self.waiting.load(Ordering::SeqCst) == 0);
        }
    }

    /// Leaves something to whoever is about to come for it.
    fn start_batch(&self, input: Input, executor: &impl CommandExecutor) {
        let gathered = self.inputs.extend([input]);
        // Looked at again, because who comes for the last time says so before it looks for what was left.
        if gathered >= BATCHED_CALLS_MAX || !self.batches_calls.load(Ordering::Relaxed) {
            self.catch_up_and_send(executor);
        } else if gathered == 1 {
            executor.wake_at(Some(executor.now() + BATCH_WAIT_MAX));
        }
    }

    /// Lets the executor take something in, now or as soon as the thread that runs it gets to it.
    pub(crate) fn handle(&self, input: Input, executor: &impl CommandExecutor) {
        self.handle_and(input, FlushMode::Coalesce, executor, |_| ());
    }

    /// The same, and looks at the context when this thread has taken it in; none if it has left it to another.
    fn handle_and<T>(
        &self,
        input: Input,
        flush_mode: FlushMode,
        executor: &impl CommandExecutor,
        busy_poll: impl FnOnce(&CommandContext) -> T,
    ) -> Option<T> {
        let seen = match self.node.try_lock() {
            Some(worker) => {
                let (ended, seen) = self.drain_and(worker, [input], flush_mode, executor, busy_poll);
                self.tell(ended);
                Some(seen)
            }
            None => {
                self.inputs.extend([input]);
                None
            }
        };
        self.apply_queued(executor);
        seen
    }

    /// The same with several events, in order. They are made one by one while the executor is held, so making one must not look
    /// at it.
    pub(crate) fn handle_all(&self, events: impl IntoIterator<Item = Event>, executor: &impl CommandExecutor) {
        let inputs = events.into_iter().map(Input::from);
        match self.node.try_lock() {
            Some(worker) => self.drain(worker, inputs, FlushMode::Coalesce, executor),
            None => {
                // Made before others are kept from leaving theirs.
                let inputs: Vec<Input> = inputs.collect();
                self.inputs.extend(inputs);
            }
        }
        self.apply_queued(executor);
    }

    /// The same for a `task` of tokio's that waits to be woken, and then comes again. If several callers receive of outcomes they leave
    /// what they send to it, and [`SerialExecutor::apply_batched`] must follow until it says that it is the end.
    pub(crate) fn handle_all_and_batch(
        &self,
        events: impl IntoIterator<Item = Event>,
        task: &Waker,
        executor: &impl CommandExecutor,
    ) -> Completed {
        let inputs = events.into_iter().map(Input::from);
        // Not left to whoever runs the executor, who would tell callers without giving way to them.
        let (ended, ()) = self.drain_and(self.node.lock(), inputs, FlushMode::Coalesce, executor, |_| ());
        let completed = match ended.len() {
            0 => Completed::None,
            1..BATCHED_CALLERS_MIN => Completed::One,
            BATCHED_CALLERS_MIN.. => Completed::Many,
        };
        if completed == Completed::Many {
            let until = self.inputs.ever() + ended.len() as u64;
            self.batch_until.store(until, Ordering::Relaxed);
            self.batches_calls.store(true, Ordering::Relaxed);
            let now = executor.now();
            ended.tell_before_giving_way(now, task, &self.deferred_wakes);
            executor.wake_at(Some(now + BATCH_WAIT_MAX));
            self.completed.fetch_add(1, Ordering::Release);
        } else {
            self.tell(ended);
            self.apply_queued(executor);
        }
        completed
    }

    /// Takes in what callers have left since they were completed. If that is nothing or there is no more to come, or nobody `comes_again` for
    /// it, they leave nothing from now on: false.
    pub(crate) fn apply_batched(&self, comes_again: bool, executor: &impl CommandExecutor) -> bool {
        let is_all = || self.inputs.ever() >= self.batch_until.load(Ordering::Relaxed);
        let batches_calls = comes_again && self.inputs.any.load(Ordering::Relaxed) && !is_all();
        if batches_calls {
            let now = executor.now();
            self.deferred_wakes.forget_callers(now);
            executor.wake_at(Some(now + BATCH_WAIT_MAX));
            // Whatever comes from now on is for the next time.
            if let Some(worker) = self.node.try_lock() {
                self.drain(worker, [], FlushMode::Now, executor);
            }
        } else {
            self.deferred_wakes.forget_all();
            self.batches_calls.store(false, Ordering::Relaxed);
            self.catch_up_and_send(executor);
        }
        batches_calls
    }

    /// It is time for something. Whoever was to come for what callers leave, or to let them run, may have been held up.
    pub(crate) fn wake(&self, executor: &impl CommandExecutor) {
        self.handle(Event::Timer.into(), executor);
        if let Some(since) = self.deferred_wakes.wake(executor.now() - BATCH_WAIT_MAX) {
            executor.wake_at(Some(since + BATCH_WAIT_MAX));
        }
    }

    /// Takes in what was left to this thread after its last look, by others for whom it seemed to run the executor.
    fn apply_queued(&self, executor: &impl CommandExecutor) {
        while !self.inputs.is_empty() {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, [], FlushMode::Coalesce, executor);
        }
    }

    /// Leaves an event behind those that wait, and says how many do. [`SerialExecutor::catch_up`] must follow soon.
    pub(crate) fn leave(&self, event: Event) -> usize {
        self.inputs.extend([event.into()])
    }

    /// Takes in what was left.
    pub(crate) fn catch_up(&self, executor: &impl CommandExecutor) {
        self.handle_all([], executor);
    }

    /// The same for somebody who has nothing more for now: what comes of it leaves at once.
    pub(crate) fn catch_up_and_send(&self, executor: &impl CommandExecutor) {
        if let Some(worker) = self.node.try_lock() {
            self.drain(worker, [], FlushMode::Now, executor);
        }
        self.apply_queued(executor);
    }

    /// Lets the executor take something in before this returns. For what a caller sends: it goes on only when its message
    /// has its place, so that nothing that it sends later by a shorter way overtakes it.
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

    /// How many events wait.
    pub(crate) fn queued(&self) -> usize {
        self.inputs.len()
    }

    /// Looks at the executor between two events.
    pub(crate) fn busy_poll<T>(&self, executor: &impl CommandExecutor, read: impl FnOnce(&Node) -> T) -> T {
        let seen = read(&self.node.lock().node);
        // An event that came meanwhile was left to this thread, which seemed to run the executor.
        if !self.inputs.is_empty() {
            self.catch_up(executor);
        }
        seen
    }

    /// Takes in what waits, then these, then what has come meanwhile.
    fn drain(
        &self,
        worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        flush_mode: FlushMode,
        executor: &impl CommandExecutor,
    ) {
        let (ended, ()) = self.drain_and(worker, inputs, flush_mode, executor, |_| ());
        self.tell(ended);
    }

    /// The same, and looks at the context in the end. Whoever calls this tells those whose calls have ended.
    fn drain_and<T>(
        &self,
        mut worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        flush_mode: FlushMode,
        executor: &impl CommandExecutor,
        busy_poll: impl FnOnce(&CommandContext) -> T,
    ) -> (Completions, T) {
        let draining = Draining::begin();
        self.drain_queue(&mut worker, executor);
        for input in inputs {
            worker.apply(input, executor);
        }
        self.drain_queue(&mut worker, executor);
        let waiting = worker.context.callers.waiting();
        self.waiting.store(waiting, Ordering::SeqCst);
        worker.context.outbox.send_off(match flush_mode {
            FlushMode::NowAwaited if waiting != 1 => FlushMode::Coalesce,
            flush_mode => flush_mode,
        });
        drop(draining);
        if !worker.stopped {
            executor.wake_at(worker.node.next_timer());
        }
        let ended = worker.context.callers.take_ended();
        let seen = busy_poll(&worker.context);
        (ended, seen)
    }

    fn tell(&self, ended: Completions) {
        if !ended.is_empty() {
            ended.tell();
            self.completed.fetch_add(1, Ordering::Release);
        }
    }

    fn drain_queue(&self, worker: &mut Worker, executor: &impl CommandExecutor) {
        let mut batch = std::mem::take(&mut worker.batch);
        let mut rounds = 0;
        // Taken all at once: whoever carries out a command may bring events.
        while self.inputs.take(&mut batch) {
            if rounds > 0 {
                // Others may bring more for as long as this goes on: no caller waits for the end of it.
                self.tell(worker.context.callers.take_ended());
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
    /// Takes in an event, and those that come of carrying out its commands.
    fn apply(&mut self, input: Input, executor: &impl CommandExecutor) {
        let Input { event, caller } = input;
        if self.stopped {
            if let Some(caller) = caller {
                caller.complete(Err(CallError::NotDelivered(NotDelivered::Unreachable)));
            }
            return;
        }
        match (&event, caller) {
            (Event::Send { message }, Some(caller)) => self.context.callers.expect(message.header.call, caller),
            (Event::GiveUp { call }, _) => self.context.callers.end(*call, Err(CallError::Cancelled)),
            _ => {}
        }
        self.apply_one(event, executor);
        while let Some(following) = self.context.next.pop_front() {
            self.apply_one(following, executor);
        }
    }

    fn apply_one(&mut self, event: Event, executor: &impl CommandExecutor) {
        tracing::trace!(?event, "takes in");
        let Self {
            node,
            commands,
            context,
            ..
        } = self;
        let done = catch_unwind(AssertUnwindSafe(|| {
            node.handle(executor.now(), event, commands);
            for command in commands.drain(..) {
                tracing::trace!(?command, "carries out");
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
        self.context.callers.end_all();
        executor.stopped();
    }
}

/// This thread is carrying out commands for as long as this lives, however that ends.
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
    /// This thread is carrying out commands: what it brings waits in the queue that it drains.
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests;
