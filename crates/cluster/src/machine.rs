//! Runs a state machine for many threads: whoever brings an event either drains the queue or leaves it to the thread
//! that does.
//!
//! INVARIANT: commands are carried out in the order in which the machine gave them, by one thread at a time. Carrying one
//! out may bring new events on the same thread: they wait in the queue, so nothing here is entered twice.

use std::cell::Cell;
use std::collections::VecDeque;

use elastin_protocol::{Command, Event, Node};
use elastin_types::Time;
use parking_lot::{Mutex, MutexGuard};

/// A [`Node`] with the events that wait for it.
pub(crate) struct Machine {
    events: Mutex<VecDeque<Event>>,
    node: Mutex<Worker>,
}

// The queues are kept between events, so that a message costs no allocation here.
struct Worker {
    node: Node,
    commands: Vec<Command>,
    /// Room for events that are taken from those that wait, all at once.
    batch: VecDeque<Event>,
    /// Events that came of carrying out a command: they happen before any other.
    next: VecDeque<Event>,
}

/// Carries out commands.
pub(crate) trait Hands {
    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// Carries out one command. What it returns happens next, before any event that waits.
    fn carry_out(&self, command: Command) -> Vec<Event>;

    /// The machine wants to be woken at this time.
    fn wake_at(&self, at: Option<Time>);
}

impl Machine {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            events: Mutex::default(),
            node: Mutex::new(Worker {
                node,
                commands: Vec::new(),
                batch: VecDeque::new(),
                next: VecDeque::new(),
            }),
        }
    }

    /// Lets the machine take in an event, now or as soon as the thread that runs it gets to it.
    pub(crate) fn handle(&self, event: Event, hands: &impl Hands) {
        self.handle_all([event], hands);
    }

    /// The same with several events, in order.
    pub(crate) fn handle_all(&self, events: impl IntoIterator<Item = Event>, hands: &impl Hands) {
        match self.node.try_lock() {
            // What waits came before.
            Some(worker) => self.drain(worker, events, hands),
            None => self.events.lock().extend(events),
        }
        // An event that came after the last look was left by its thread to this one.
        while !self.events.lock().is_empty() {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, [], hands);
        }
    }

    /// Leaves an event behind those that wait, and says how many do. [`Machine::catch_up`] must follow soon.
    pub(crate) fn leave(&self, event: Event) -> usize {
        let mut events = self.events.lock();
        events.push_back(event);
        events.len()
    }

    /// Takes in what was left.
    pub(crate) fn catch_up(&self, hands: &impl Hands) {
        self.handle_all([], hands);
    }

    /// Lets the machine take in an event before this returns. For what a caller sends: it goes on only when its message
    /// has its place, so that nothing that it sends later by a shorter way overtakes it.
    pub(crate) fn handle_now(&self, event: Event, hands: &impl Hands) {
        if DRAINING.get() {
            return self.events.lock().push_back(event);
        }
        let worker = self.node.lock();
        self.drain(worker, [event], hands);
        if !self.events.lock().is_empty() {
            self.catch_up(hands);
        }
    }

    /// How many events wait.
    pub(crate) fn queued(&self) -> usize {
        self.events.lock().len()
    }

    /// Looks at the machine between two events.
    pub(crate) fn look<T>(&self, hands: &impl Hands, read: impl FnOnce(&Node) -> T) -> T {
        let seen = read(&self.node.lock().node);
        // An event that came meanwhile was left to this thread, which seemed to run the machine.
        if !self.events.lock().is_empty() {
            self.catch_up(hands);
        }
        seen
    }

    /// Takes in what waits, then these events, then what has come meanwhile.
    fn drain(&self, mut worker: MutexGuard<'_, Worker>, events: impl IntoIterator<Item = Event>, hands: &impl Hands) {
        DRAINING.set(true);
        self.drain_queue(&mut worker, hands);
        for event in events {
            worker.take_in(event, hands);
        }
        self.drain_queue(&mut worker, hands);
        DRAINING.set(false);
        hands.wake_at(worker.node.next_timer());
    }

    fn drain_queue(&self, worker: &mut Worker, hands: &impl Hands) {
        loop {
            let mut batch = std::mem::take(&mut worker.batch);
            // The lock is held for the swap only: whoever carries out a command may bring events.
            std::mem::swap(&mut *self.events.lock(), &mut batch);
            let is_over = batch.is_empty();
            for event in batch.drain(..) {
                worker.take_in(event, hands);
            }
            worker.batch = batch;
            if is_over {
                return;
            }
        }
    }
}

impl Worker {
    /// Takes in an event, and those that come of carrying out its commands.
    fn take_in(&mut self, event: Event, hands: &impl Hands) {
        let Worker {
            node, commands, next, ..
        } = self;
        let mut event = event;
        loop {
            tracing::trace!(?event, "takes in");
            node.handle(hands.now(), event, commands);
            for command in commands.drain(..) {
                tracing::trace!(?command, "carries out");
                next.extend(hands.carry_out(command));
            }
            match next.pop_front() {
                Some(following) => event = following,
                None => return,
            }
        }
    }
}

thread_local! {
    /// This thread is carrying out commands: what it brings waits in the queue that it drains.
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}
