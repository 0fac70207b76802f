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
    /// Events that were taken from those that wait, all at once.
    batch: VecDeque<Event>,
    /// Events that came of carrying out a command: they happen before those of the batch.
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
        self.events.lock().extend(events);
        loop {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, hands);
            // An event that came after the last look was left by its thread to this one.
            if self.events.lock().is_empty() {
                return;
            }
        }
    }

    /// Lets the machine take in an event before this returns. For what a caller sends: it goes on only when its message
    /// has its place, so that nothing that it sends later by a shorter way overtakes it.
    pub(crate) fn handle_now(&self, event: Event, hands: &impl Hands) {
        self.events.lock().push_back(event);
        if DRAINING.get() {
            return;
        }
        let worker = self.node.lock();
        self.drain(worker, hands);
        if !self.events.lock().is_empty() {
            self.handle(Event::Timer, hands);
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
            self.handle_all([], hands);
        }
        seen
    }

    fn drain(&self, mut worker: MutexGuard<'_, Worker>, hands: &impl Hands) {
        let Worker {
            node,
            commands,
            batch,
            next,
        } = &mut *worker;
        DRAINING.set(true);
        loop {
            let Some(event) = next.pop_front().or_else(|| batch.pop_front()) else {
                // The lock is held for the swap only: whoever carries out a command may bring events.
                std::mem::swap(&mut *self.events.lock(), batch);
                if batch.is_empty() {
                    break;
                }
                continue;
            };
            tracing::trace!(?event, "takes in");
            node.handle(hands.now(), event, commands);
            for command in commands.drain(..) {
                tracing::trace!(?command, "carries out");
                next.extend(hands.carry_out(command));
            }
        }
        DRAINING.set(false);
        hands.wake_at(node.next_timer());
    }
}

thread_local! {
    /// This thread is carrying out commands: what it brings waits in the queue that it drains.
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}
