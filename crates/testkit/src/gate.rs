//! An actor that blocks its thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use elastin::prelude::*;

/// The longest wait at the gate of a process.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The one gate of a process.
static GATE: (Mutex<GateState>, Condvar) = (
    Mutex::new(GateState {
        waits: false,
        open: false,
    }),
    Condvar::new(),
);

struct GateState {
    waits: bool,
    open: bool,
}

/// Waits at the gate of its process while it blocks its thread, or opens the gate for another actor.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Gate {}

#[handlers]
impl Gate {
    /// Waits until the gate is opened; false on a timeout.
    async fn wait(&mut self) -> bool {
        let (state, changed) = &GATE;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waits = true;
        let (mut state, timed) = changed
            .wait_timeout_while(state, WAIT_MAX, |state| !state.open)
            .unwrap_or_else(PoisonError::into_inner);
        *state = GateState {
            waits: false,
            open: false,
        };
        !timed.timed_out()
    }

    /// Whether a turn waits.
    async fn is_awaited(&self) -> bool {
        GATE.0.lock().unwrap_or_else(PoisonError::into_inner).waits
    }

    /// Releases the waiting turn.
    async fn open(&mut self) {
        GATE.0.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        GATE.1.notify_all();
    }
}
