//! Who reads a connection on while its reader runs an actor.
//!
//! The task that reads a connection runs errands itself, which saves a wake-up. But a handler may run for long, and nobody
//! must wait for it who only shares the connection. So a reader puts its connection down here before it begins, and a thread
//! that looks in from time to time gives one that has been lying here for too long to another task.
//!
//! That thread is none of tokio's: what has to be noticed is that one of those is held up. One errand at a time is run like
//! this, so that another of them is always free to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use super::reading::{self, Reading};

/// How often it looks in. What lies here for a whole period is handed over.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// After so many looks at nothing new it looks only when something is put down again: a quiet node has nobody awake.
const IDLE_LOOKS_MAX: u32 = 50;

/// A connection has been put down somewhere in this process, whose transports may share the threads of one tokio runtime.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Where readers put their connections down.
pub(super) struct Lookout {
    place: Arc<Place>,
}

struct Place {
    handle: Handle,
    state: Mutex<State>,
    put_down: Condvar,
}

#[derive(Default)]
struct State {
    lying: Option<Reading>,
    /// Counts what was put down.
    number: u64,
    /// There is a thread.
    started: bool,
    /// It waits until it is told.
    asleep: bool,
    closed: bool,
}

/// Whoever has this has put a connection down and may take it back.
#[must_use]
pub(super) struct Ticket(u64);

impl Lookout {
    pub(super) fn new(handle: Handle) -> Self {
        let place = Place {
            handle,
            state: Mutex::default(),
            put_down: Condvar::new(),
        };
        Self { place: Arc::new(place) }
    }

    /// Puts a connection down; gives it back if nobody could take it over.
    pub(super) fn put_down(&self, reading: Reading) -> Result<Ticket, Reading> {
        let place = &self.place;
        if place.handle.metrics().num_workers() < 2 || TAKEN.swap(true, Ordering::Acquire) {
            return Err(reading);
        }
        let mut state = place.state.lock();
        if !state.started && !start(place, &mut state) || state.closed {
            TAKEN.store(false, Ordering::Release);
            return Err(reading);
        }
        state.number += 1;
        state.lying = Some(reading);
        if std::mem::take(&mut state.asleep) {
            place.put_down.notify_one();
        }
        Ok(Ticket(state.number))
    }

    /// Takes a connection back, unless another task reads it meanwhile.
    pub(super) fn take_back(&self, ticket: Ticket) -> Option<Reading> {
        let mut state = self.place.state.lock();
        assert_eq!(state.number, ticket.0, "one is put down at a time");
        TAKEN.store(false, Ordering::Release);
        state.lying.take()
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        let mut state = self.place.state.lock();
        state.closed = true;
        self.place.put_down.notify_one();
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.close();
    }
}

fn start(place: &Arc<Place>, state: &mut State) -> bool {
    let of_thread = Arc::clone(place);
    let thread = std::thread::Builder::new().name("elastin-lookout".into());
    match thread.spawn(move || of_thread.look()) {
        Ok(_) => state.started = true,
        Err(error) => tracing::warn!(%error, "no thread to look after connections"),
    }
    state.started
}

impl Place {
    /// The life of the thread.
    fn look(&self) {
        let mut state = self.state.lock();
        let (mut seen, mut idle_looks) = (0, 0);
        while !state.closed {
            if state.number == seen && state.lying.is_some() {
                let held_up = state.lying.take().expect("it was just seen");
                tracing::debug!("an actor runs for long, and another task reads its connection");
                self.handle.spawn(reading::read_on(held_up));
            }
            idle_looks = if state.number == seen { idle_looks + 1 } else { 0 };
            seen = state.number;
            if idle_looks < IDLE_LOOKS_MAX {
                self.put_down.wait_for(&mut state, LOOK_EVERY);
                continue;
            }
            state.asleep = true;
            self.put_down.wait(&mut state);
            state.asleep = false;
        }
    }
}
