//! What of an activation is behind a lock: its mail, and its state whenever the actor is not idle.

use std::collections::BTreeMap;
use std::task::Waker;

use elastin_actor::{Body, Scope, Timer, TimerId, WakeId};
use elastin_types::{ActivationEpoch, ChainId, Time};

use crate::FreezeDone;
use crate::queue::{AnyTurn, Queue};

/// What of an activation is behind a lock.
///
/// The actor's body is in exactly one place: idle in the seat's atomic cell, with whoever runs a turn, or in one of
/// `waiting`, `suspended`, `saving` and `freeze` here.
pub(crate) struct Mailbox<A> {
    /// The activation; `None` when there is none.
    pub(crate) epoch: Option<ActivationEpoch>,
    pub(crate) since: Time,
    /// The seat is in a run queue.
    pub(crate) scheduled: bool,
    /// The turn that runs, or is about to be suspended, was woken.
    pub(crate) woken: bool,
    /// A turn of a discarded activation still runs somewhere: a new activation waits for it to end.
    pub(crate) orphan: bool,
    /// The activation was lost; its mail waits for where to go.
    pub(crate) rerouting: bool,
    /// The body that waits for a worker.
    pub(crate) waiting: Option<Box<Body<A>>>,
    /// Everything that most actors don't need most of the time.
    rest: Option<Box<Rest<A>>>,
}

/// What only some actors have, and only at times.
pub(crate) struct Rest<A> {
    pub(crate) queue: Queue<A>,
    pub(crate) suspended: Option<Suspended<A>>,
    pub(crate) saving: Option<Saving<A>>,
    pub(crate) saves: u64,
    pub(crate) freeze: Freeze<A>,
    /// Who waits for room in the queue.
    pub(crate) room: Vec<Waker>,
    pub(crate) ending: Ending,
    pub(crate) timers: BTreeMap<TimerId, ActorTimer>,
    pub(crate) next_timer: u64,
}

/// A turn that waits for something.
pub(crate) struct Suspended<A> {
    pub(crate) turn: AnyTurn<A>,
    pub(crate) scope: Box<Scope>,
    pub(crate) waker: Waker,
}

/// A save that is under way, and the turns that are over but whose callers may not know before it has ended. None, if
/// the activation is about to end.
pub(crate) struct Saving<A> {
    pub(crate) number: u64,
    pub(crate) body: Box<Body<A>>,
    pub(crate) turns: Vec<AnyTurn<A>>,
}

/// How far a freeze is.
pub(crate) enum Freeze<A> {
    No,
    /// The activation freezes at its next turn boundary.
    Asked {
        done: FreezeDone,
        timer: WakeId,
        /// The hook before a move has run or is in the queue.
        hooked: bool,
    },
    Frozen(Box<Body<A>>),
}

/// Whether the activation is to end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    Asked,
    /// The hook has run or is in the queue.
    Hooked,
}

/// A timer of an activation.
pub(crate) struct ActorTimer {
    pub(crate) timer: Timer,
    pub(crate) wake: WakeId,
}

impl<A> Mailbox<A> {
    pub(crate) fn new() -> Self {
        Self {
            epoch: None,
            since: Time::ZERO,
            scheduled: false,
            woken: false,
            orphan: false,
            rerouting: false,
            waiting: None,
            rest: None,
        }
    }

    pub(crate) fn rest(&mut self) -> &mut Rest<A> {
        self.rest.get_or_insert_with(|| Box::new(Rest::new()))
    }

    pub(crate) fn rest_if_any(&mut self) -> Option<&mut Rest<A>> {
        self.rest.as_deref_mut()
    }

    /// Takes everything that belongs to an activation that is over.
    pub(crate) fn take_rest(&mut self) -> Option<Box<Rest<A>>> {
        self.rest.take()
    }

    /// Frees what an idle actor does not need.
    pub(crate) fn shrink(&mut self) {
        if self.rest.as_ref().is_some_and(|rest| rest.is_unused()) {
            self.rest = None;
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| rest.queue.len())
    }

    /// Whether a turn waits for something.
    pub(crate) fn is_suspended(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.suspended.is_some())
    }

    /// The chain of calls that the suspended turn belongs to, unless nobody else can belong to it.
    pub(crate) fn suspended_chain(&self) -> Option<ChainId> {
        let suspended = self.rest.as_ref()?.suspended.as_ref()?;
        suspended.scope.chain()
    }
}

impl<A> Rest<A> {
    fn new() -> Self {
        Self {
            queue: Queue::new(),
            suspended: None,
            saving: None,
            saves: 0,
            freeze: Freeze::No,
            room: Vec::new(),
            ending: Ending::No,
            timers: BTreeMap::new(),
            next_timer: 0,
        }
    }

    fn is_unused(&self) -> bool {
        self.queue.is_empty()
            && self.suspended.is_none()
            && self.saving.is_none()
            && matches!(self.freeze, Freeze::No)
            && self.room.is_empty()
            && self.ending == Ending::No
            && self.timers.is_empty()
    }

    /// Takes the calls out of the queue that belong to a chain which the suspended turn waits for: they would wait for
    /// themselves.
    pub(crate) fn take_cycles(&mut self, chain: ChainId) -> Vec<AnyTurn<A>> {
        self.queue.take_matching(|turn| {
            turn.carried()
                .is_some_and(|carried| !carried.one_way() && carried.chain() == Some(chain))
        })
    }
}
