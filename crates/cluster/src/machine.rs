//! Runs a state machine for many threads: whoever brings an event either drains the queue or leaves it to the thread
//! that does.
//!
//! INVARIANT: commands are carried out in the order in which the machine gave them, by one thread at a time. Carrying one
//! out may bring new events on the same thread: they wait in the queue, so nothing here is entered twice.
//!
//! A panic is a bug, and what it leaves behind may be wrong: the machine stops for good and tells the [`Hands`], so that others take
//! over from this node as if it had crashed.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use elastin_actor::ReplySlot;
use elastin_protocol::{Command, Event, Node};
use elastin_types::{CallError, NotDelivered, Time};
use parking_lot::{Mutex, MutexGuard};

use crate::callers::{Callers, Ended};
use crate::transport::{Awaited, Outbox};

/// A [`Node`] with the events that wait for it.
pub(crate) struct Machine {
    inputs: Inputs,
    node: Mutex<Worker>,
    /// How often callers heard of outcomes.
    told: AtomicU64,
}

/// What waits for the thread that runs the machine.
#[derive(Default)]
struct Inputs {
    queue: Mutex<VecDeque<Input>>,
    /// Whether there are any, for those who look again before they go: nearly always there are none, and no lock is needed. Set with
    /// the lock.
    any: AtomicBool,
}

impl Inputs {
    /// Appends some, and says how many there are.
    fn extend(&self, inputs: impl IntoIterator<Item = Input>) -> usize {
        let mut queue = self.queue.lock();
        queue.extend(inputs);
        self.any.store(!queue.is_empty(), Ordering::Relaxed);
        queue.len()
    }

    fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether there are none for certain. Whoever has left one before this sees it.
    fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Takes all that this thread knows of, into an empty queue that is given for it. False if there are none.
    fn take(&self, batch: &mut VecDeque<Input>) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut queue = self.queue.lock();
        std::mem::swap(&mut *queue, batch);
        self.any.store(false, Ordering::Relaxed);
        !batch.is_empty()
    }
}

/// What the machine takes in.
pub(crate) struct Input {
    event: Event,
    /// Who waits for the outcome, if the event is a call.
    caller: Option<ReplySlot>,
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self { event, caller: None }
    }
}

impl Input {
    /// A message, and who waits for its outcome.
    pub(crate) fn of_call(event: Event, caller: Option<ReplySlot>) -> Self {
        Self { event, caller }
    }
}

// The queues are kept between events, so that a message costs no allocation here.
struct Worker {
    node: Node,
    commands: Vec<Command>,
    /// Room for inputs that are taken from those that wait, all at once.
    batch: VecDeque<Input>,
    desk: Desk,
    /// A panic came of something: nothing is taken in any more.
    stopped: bool,
}

/// What whoever carries out commands has at hand.
#[derive(Default)]
pub(crate) struct Desk {
    /// Frames that leave when there is nothing more to take in.
    pub(crate) outbox: Outbox,
    /// Events that came of carrying out a command: they happen before any other.
    pub(crate) next: VecDeque<Event>,
    /// Callers here that wait for an outcome. They hear of it when the machine is free again, because they most likely have
    /// more for it, and what decodes a reply is the application's.
    pub(crate) callers: Callers,
}

impl Desk {
    /// Where the outcome comes from that somebody waits for, if only one does.
    fn awaited(&self) -> Option<Awaited> {
        match self.callers.waits_one() {
            true => self.outbox.awaited(),
            false => None,
        }
    }
}

/// Carries out commands.
pub(crate) trait Hands {
    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// Carries out one command.
    fn carry_out(&self, command: Command, desk: &mut Desk);

    /// A panic came of something, and the machine has stopped for good.
    fn stopped(&self);

    /// The machine wants to be woken at this time.
    fn wake_at(&self, at: Option<Time>);
}

impl Machine {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            inputs: Inputs::default(),
            node: Mutex::new(Worker {
                node,
                commands: Vec::new(),
                batch: VecDeque::new(),
                desk: Desk::default(),
                stopped: false,
            }),
            told: AtomicU64::new(0),
        }
    }

    /// Lets the machine take a call in, as [`Machine::handle`]. If its caller is the only one that waits, looks for the reply for a
    /// moment.
    pub(crate) fn call(&self, input: Input, hands: &impl Hands) {
        let told = self.told.load(Ordering::Acquire);
        if let Some(awaited) = self.handle_and(input, hands, Desk::awaited).flatten() {
            awaited.look(|| self.told.load(Ordering::Acquire) != told);
        }
    }

    /// Lets the machine take something in, now or as soon as the thread that runs it gets to it.
    pub(crate) fn handle(&self, input: Input, hands: &impl Hands) {
        self.handle_and(input, hands, |_| ());
    }

    /// The same, and looks at the desk when this thread has taken it in; none if it has left it to another.
    fn handle_and<T>(&self, input: Input, hands: &impl Hands, look: impl FnOnce(&Desk) -> T) -> Option<T> {
        let seen = match self.node.try_lock() {
            Some(worker) => Some(self.drain_and(worker, [input], hands, look)),
            None => {
                self.inputs.extend([input]);
                None
            }
        };
        self.take_in_left(hands);
        seen
    }

    /// The same with several events, in order. They are made one by one while the machine is held, so making one must not look
    /// at it.
    pub(crate) fn handle_all(&self, events: impl IntoIterator<Item = Event>, hands: &impl Hands) {
        match self.node.try_lock() {
            Some(worker) => self.drain(worker, events.into_iter().map(Input::from), hands),
            None => {
                // Made before others are kept from leaving theirs.
                let inputs: Vec<Input> = events.into_iter().map(Input::from).collect();
                self.inputs.extend(inputs);
            }
        }
        self.take_in_left(hands);
    }

    /// Takes in what was left to this thread after its last look, by others for whom it seemed to run the machine.
    fn take_in_left(&self, hands: &impl Hands) {
        while !self.inputs.is_empty() {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, [], hands);
        }
    }

    /// Leaves an event behind those that wait, and says how many do. [`Machine::catch_up`] must follow soon.
    pub(crate) fn leave(&self, event: Event) -> usize {
        self.inputs.extend([event.into()])
    }

    /// Takes in what was left.
    pub(crate) fn catch_up(&self, hands: &impl Hands) {
        self.handle_all([], hands);
    }

    /// Lets the machine take something in before this returns. For what a caller sends: it goes on only when its message
    /// has its place, so that nothing that it sends later by a shorter way overtakes it.
    pub(crate) fn handle_now(&self, input: Input, hands: &impl Hands) {
        if DRAINING.get() {
            self.inputs.extend([input]);
            return;
        }
        let worker = self.node.lock();
        self.drain(worker, [input], hands);
        if !self.inputs.is_empty() {
            self.catch_up(hands);
        }
    }

    /// How many events wait.
    pub(crate) fn queued(&self) -> usize {
        self.inputs.len()
    }

    /// Looks at the machine between two events.
    pub(crate) fn look<T>(&self, hands: &impl Hands, read: impl FnOnce(&Node) -> T) -> T {
        let seen = read(&self.node.lock().node);
        // An event that came meanwhile was left to this thread, which seemed to run the machine.
        if !self.inputs.is_empty() {
            self.catch_up(hands);
        }
        seen
    }

    /// Takes in what waits, then these, then what has come meanwhile.
    fn drain(&self, worker: MutexGuard<'_, Worker>, inputs: impl IntoIterator<Item = Input>, hands: &impl Hands) {
        self.drain_and(worker, inputs, hands, |_| ());
    }

    /// The same, and looks at the desk in the end.
    fn drain_and<T>(
        &self,
        mut worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        hands: &impl Hands,
        look: impl FnOnce(&Desk) -> T,
    ) -> T {
        let draining = Draining::begin();
        self.drain_queue(&mut worker, hands);
        for input in inputs {
            worker.take_in(input, hands);
        }
        self.drain_queue(&mut worker, hands);
        worker.desk.outbox.send_off();
        drop(draining);
        if !worker.stopped {
            hands.wake_at(worker.node.next_timer());
        }
        let ended = worker.desk.callers.take_ended();
        let seen = look(&worker.desk);
        drop(worker);
        self.tell(ended);
        seen
    }

    fn tell(&self, ended: Ended) {
        if !ended.is_empty() {
            ended.tell();
            self.told.fetch_add(1, Ordering::Release);
        }
    }

    fn drain_queue(&self, worker: &mut Worker, hands: &impl Hands) {
        let mut batch = std::mem::take(&mut worker.batch);
        // Taken all at once: whoever carries out a command may bring events.
        while self.inputs.take(&mut batch) {
            for input in batch.drain(..) {
                worker.take_in(input, hands);
            }
            // Others may bring more for as long as this goes on: no caller waits for the end of it.
            self.tell(worker.desk.callers.take_ended());
        }
        worker.batch = batch;
    }
}

impl Worker {
    /// Takes in an event, and those that come of carrying out its commands.
    fn take_in(&mut self, input: Input, hands: &impl Hands) {
        let Input { event, caller } = input;
        if self.stopped {
            if let Some(caller) = caller {
                caller.complete(Err(CallError::NotDelivered(NotDelivered::Unreachable)));
            }
            return;
        }
        match (&event, caller) {
            (Event::Send { message }, Some(caller)) => self.desk.callers.expect(message.header.call, caller),
            (Event::GiveUp { call }, _) => self.desk.callers.end(*call, Err(CallError::Cancelled)),
            _ => {}
        }
        self.take_in_one(event, hands);
        while let Some(following) = self.desk.next.pop_front() {
            self.take_in_one(following, hands);
        }
    }

    fn take_in_one(&mut self, event: Event, hands: &impl Hands) {
        tracing::trace!(?event, "takes in");
        let Self {
            node, commands, desk, ..
        } = self;
        let done = catch_unwind(AssertUnwindSafe(|| {
            node.handle(hands.now(), event, commands);
            for command in commands.drain(..) {
                tracing::trace!(?command, "carries out");
                hands.carry_out(command, desk);
            }
        }));
        if done.is_err() {
            self.stop(hands);
        }
    }

    #[cold]
    fn stop(&mut self, hands: &impl Hands) {
        self.stopped = true;
        self.desk.next.clear();
        self.desk.callers.end_all();
        hands.stopped();
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
