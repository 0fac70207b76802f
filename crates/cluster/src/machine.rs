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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use elastin_actor::ReplySlot;
use elastin_protocol::{Command, Event, Node};
use elastin_types::{CallError, NotDelivered, Time};
use parking_lot::{Mutex, MutexGuard};

use crate::callers::{Callers, Ended, WokenLater};
use crate::transport::{Awaited, Departure, Outbox};

/// So many callers who hear of outcomes together are worth waiting for. One alone is quickest if it does everything itself.
const GATHERS_MIN: usize = 2;

/// What callers have left is not kept waiting if it is so much.
const GATHERED_MAX: usize = 32;

/// Nor for longer than this, if whoever is to come for it is held up by what else its thread has to do.
const GATHERED_WAITS_MAX: Duration = Duration::from_millis(1);

/// A [`Node`] with the events that wait for it.
pub(crate) struct Machine {
    inputs: Inputs,
    /// Somebody is about to come for what callers send: they leave it.
    gathers: AtomicBool,
    /// So many inputs will have been left when everybody who was told so has sent something.
    gathers_until: AtomicU64,
    /// Who was told so.
    woken_later: WokenLater,
    node: Mutex<Worker>,
    /// How often callers heard of outcomes.
    told: AtomicU64,
    /// How many callers wait for one. Set before what they send leaves.
    waiting: AtomicUsize,
}

/// What waits for the thread that runs the machine.
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
        match self.callers.waiting() {
            1 => self.outbox.awaited(),
            _ => None,
        }
    }
}

/// Who has heard of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nobody,
    One,
    /// They leave what they send.
    Several,
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
            gathers: AtomicBool::new(false),
            gathers_until: AtomicU64::new(0),
            woken_later: WokenLater::default(),
            node: Mutex::new(Worker {
                node,
                commands: Vec::new(),
                batch: VecDeque::new(),
                desk: Desk::default(),
                stopped: false,
            }),
            told: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Lets the machine take in what a client sends: where no actor ever is there is no shorter way on which something that is
    /// sent later could overtake it, so it may be left to others. A caller that waits alone looks for its reply for a moment.
    pub(crate) fn send(&self, input: Input, hands: &impl Hands) {
        if self.gathers.load(Ordering::Relaxed) {
            return self.gather(input, hands);
        }
        if input.caller.is_none() {
            return self.handle(input, hands);
        }
        let told = self.told.load(Ordering::Acquire);
        let awaited = self.handle_and(input, Departure::Awaited, hands, Desk::awaited);
        if let Some(awaited) = awaited.flatten() {
            let is_there = || self.told.load(Ordering::Acquire) != told;
            awaited.look(is_there, || self.waiting.load(Ordering::SeqCst) == 0);
        }
    }

    /// Leaves something to whoever is about to come for it.
    fn gather(&self, input: Input, hands: &impl Hands) {
        let gathered = self.inputs.extend([input]);
        // Looked at again, because who comes for the last time says so before it looks for what was left.
        if gathered >= GATHERED_MAX || !self.gathers.load(Ordering::Relaxed) {
            self.catch_up_and_send(hands);
        } else if gathered == 1 {
            hands.wake_at(Some(hands.now() + GATHERED_WAITS_MAX));
        }
    }

    /// Lets the machine take something in, now or as soon as the thread that runs it gets to it.
    pub(crate) fn handle(&self, input: Input, hands: &impl Hands) {
        self.handle_and(input, Departure::WithOthers, hands, |_| ());
    }

    /// The same, and looks at the desk when this thread has taken it in; none if it has left it to another.
    fn handle_and<T>(
        &self,
        input: Input,
        departure: Departure,
        hands: &impl Hands,
        look: impl FnOnce(&Desk) -> T,
    ) -> Option<T> {
        let seen = match self.node.try_lock() {
            Some(worker) => {
                let (ended, seen) = self.drain_and(worker, [input], departure, hands, look);
                self.tell(ended);
                Some(seen)
            }
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
        let inputs = events.into_iter().map(Input::from);
        match self.node.try_lock() {
            Some(worker) => self.drain(worker, inputs, Departure::WithOthers, hands),
            None => {
                // Made before others are kept from leaving theirs.
                let inputs: Vec<Input> = inputs.collect();
                self.inputs.extend(inputs);
            }
        }
        self.take_in_left(hands);
    }

    /// The same for a `task` of tokio's that waits to be woken, and then comes again. If several callers hear of outcomes they leave
    /// what they send to it, and [`Machine::take_in_gathered`] must follow until it says that it is the end.
    pub(crate) fn handle_all_and_gather(
        &self,
        events: impl IntoIterator<Item = Event>,
        task: &Waker,
        hands: &impl Hands,
    ) -> Told {
        let inputs = events.into_iter().map(Input::from);
        // Not left to whoever runs the machine, who would tell callers without giving way to them.
        let (ended, ()) = self.drain_and(self.node.lock(), inputs, Departure::WithOthers, hands, |_| ());
        let told = match ended.len() {
            0 => Told::Nobody,
            1..GATHERS_MIN => Told::One,
            GATHERS_MIN.. => Told::Several,
        };
        if told == Told::Several {
            let until = self.inputs.ever() + ended.len() as u64;
            self.gathers_until.store(until, Ordering::Relaxed);
            self.gathers.store(true, Ordering::Relaxed);
            let now = hands.now();
            ended.tell_before_giving_way(now, task, &self.woken_later);
            hands.wake_at(Some(now + GATHERED_WAITS_MAX));
            self.told.fetch_add(1, Ordering::Release);
        } else {
            self.tell(ended);
            self.take_in_left(hands);
        }
        told
    }

    /// Takes in what callers have left since they were told. If that is nothing or there is no more to come, or nobody `comes_again` for
    /// it, they leave nothing from now on: false.
    pub(crate) fn take_in_gathered(&self, comes_again: bool, hands: &impl Hands) -> bool {
        let is_all = || self.inputs.ever() >= self.gathers_until.load(Ordering::Relaxed);
        let gathers = comes_again && self.inputs.any.load(Ordering::Relaxed) && !is_all();
        if gathers {
            let now = hands.now();
            self.woken_later.forget_callers(now);
            hands.wake_at(Some(now + GATHERED_WAITS_MAX));
            // Whatever comes from now on is for the next time.
            if let Some(worker) = self.node.try_lock() {
                self.drain(worker, [], Departure::AtOnce, hands);
            }
        } else {
            self.woken_later.forget_all();
            self.gathers.store(false, Ordering::Relaxed);
            self.catch_up_and_send(hands);
        }
        gathers
    }

    /// It is time for something. Whoever was to come for what callers leave, or to let them run, may have been held up.
    pub(crate) fn wake(&self, hands: &impl Hands) {
        self.handle(Event::Timer.into(), hands);
        if let Some(since) = self.woken_later.wake(hands.now() - GATHERED_WAITS_MAX) {
            hands.wake_at(Some(since + GATHERED_WAITS_MAX));
        }
    }

    /// Takes in what was left to this thread after its last look, by others for whom it seemed to run the machine.
    fn take_in_left(&self, hands: &impl Hands) {
        while !self.inputs.is_empty() {
            let Some(worker) = self.node.try_lock() else { return };
            self.drain(worker, [], Departure::WithOthers, hands);
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

    /// The same for somebody who has nothing more for now: what comes of it leaves at once.
    pub(crate) fn catch_up_and_send(&self, hands: &impl Hands) {
        if let Some(worker) = self.node.try_lock() {
            self.drain(worker, [], Departure::AtOnce, hands);
        }
        self.take_in_left(hands);
    }

    /// Lets the machine take something in before this returns. For what a caller sends: it goes on only when its message
    /// has its place, so that nothing that it sends later by a shorter way overtakes it.
    pub(crate) fn handle_now(&self, input: Input, hands: &impl Hands) {
        if DRAINING.get() {
            self.inputs.extend([input]);
            return;
        }
        let worker = self.node.lock();
        self.drain(worker, [input], Departure::WithOthers, hands);
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
    fn drain(
        &self,
        worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        departure: Departure,
        hands: &impl Hands,
    ) {
        let (ended, ()) = self.drain_and(worker, inputs, departure, hands, |_| ());
        self.tell(ended);
    }

    /// The same, and looks at the desk in the end. Whoever calls this tells those whose calls have ended.
    fn drain_and<T>(
        &self,
        mut worker: MutexGuard<'_, Worker>,
        inputs: impl IntoIterator<Item = Input>,
        departure: Departure,
        hands: &impl Hands,
        look: impl FnOnce(&Desk) -> T,
    ) -> (Ended, T) {
        let draining = Draining::begin();
        self.drain_queue(&mut worker, hands);
        for input in inputs {
            worker.take_in(input, hands);
        }
        self.drain_queue(&mut worker, hands);
        let waiting = worker.desk.callers.waiting();
        self.waiting.store(waiting, Ordering::SeqCst);
        worker.desk.outbox.send_off(match departure {
            Departure::Awaited if waiting != 1 => Departure::WithOthers,
            departure => departure,
        });
        drop(draining);
        if !worker.stopped {
            hands.wake_at(worker.node.next_timer());
        }
        let ended = worker.desk.callers.take_ended();
        let seen = look(&worker.desk);
        (ended, seen)
    }

    fn tell(&self, ended: Ended) {
        if !ended.is_empty() {
            ended.tell();
            self.told.fetch_add(1, Ordering::Release);
        }
    }

    fn drain_queue(&self, worker: &mut Worker, hands: &impl Hands) {
        let mut batch = std::mem::take(&mut worker.batch);
        let mut rounds = 0;
        // Taken all at once: whoever carries out a command may bring events.
        while self.inputs.take(&mut batch) {
            if rounds > 0 {
                // Others may bring more for as long as this goes on: no caller waits for the end of it.
                self.tell(worker.desk.callers.take_ended());
            }
            for input in batch.drain(..) {
                worker.take_in(input, hands);
            }
            rounds += 1;
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
