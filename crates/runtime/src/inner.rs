//! State shared by all parts of a runtime; also the [`Host`] that references are bound to.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use elastin_actor::{Host, ReplySender, WakeId};
use elastin_clock::Clock;
use elastin_types::{ActorId, CallError, CallId, Message, NodeId, NotDelivered, Outcome, Rejected, Schema, Time};
use parking_lot::Mutex;

use crate::active_set::ActiveSet;
use crate::cell::erased::ErasedCell;
use crate::registry::Registry;
use crate::scheduler::Scheduler;
use crate::scheduler::caller_resume::ResumeWatchdog;
use crate::timers::{Due, Timers};
use crate::{Remote, Settings};

/// State shared by all parts of a runtime.
pub(crate) struct RuntimeInner {
    pub(crate) me: Weak<RuntimeInner>,
    pub(crate) settings: Settings,
    pub(crate) schema: Schema,
    pub(crate) clock: Clock,
    pub(crate) registry: Registry,
    pub(crate) active: ActiveSet,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) watchdog: Arc<ResumeWatchdog>,
    pub(crate) remote: Arc<dyn Remote>,
    /// Replies deferred until the fence is lifted.
    pub(crate) held: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    pub(crate) stopped: AtomicBool,
    /// The number of the next call.
    pub(crate) next_call: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) panics: AtomicU64,
    /// Calls and one-way messages that found a mailbox full.
    pub(crate) overloads: AtomicU64,
    pub(crate) activations: AtomicU64,
}

impl RuntimeInner {
    /// The local cell of an actor; `None` if its type is not registered or its key is too long.
    pub(crate) fn cell(&self, actor: &ActorId) -> Option<Arc<dyn ErasedCell>> {
        actor.key.check().ok()?;
        let runtime = || self.me.upgrade().expect("a runtime in use is alive");
        self.registry.get_or_insert(actor, runtime)
    }

    /// Sends a reply now, or when the fence is lifted.
    pub(crate) fn when_unfenced(&self, reply: impl FnOnce() + Send + 'static) {
        if !self.scheduler.is_fenced() {
            return reply();
        }
        let mut held = self.held.lock();
        // Checked again under the lock: the thread that lifts the fence drains `held` after that.
        if self.scheduler.is_fenced() {
            held.push(Box::new(reply));
            return;
        }
        drop(held);
        reply();
    }

    pub(crate) fn may_act_until(&self, until: Time) {
        self.scheduler.set_lease_until(until);
        self.fence(self.clock.now() >= until);
    }

    pub(crate) fn fence(&self, fenced: bool) {
        self.scheduler.set_fenced(fenced);
        if !fenced {
            let held = std::mem::take(&mut *self.held.lock());
            for reply in held {
                reply();
            }
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Host for RuntimeInner {
    fn node(&self) -> NodeId {
        self.settings.node
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn next_call(&self) -> CallId {
        CallId {
            origin: self.settings.node,
            sequence: self.next_call.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn resolve(&self, actor: &ActorId) -> Option<Box<dyn Any>> {
        self.cell(actor).map(ErasedCell::target)
    }

    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>) {
        let refused = if self.is_stopped() {
            CallError::NotDelivered(NotDelivered::ShuttingDown)
        } else if let Err(long) = message.target.key.check() {
            CallError::Rejected(Rejected::KeyTooLong { bytes: long.bytes })
        } else {
            return self.remote.send(message, reply);
        };
        if let Some(reply) = reply {
            reply.complete(Err(refused));
        }
    }

    fn keeps_deadlines(&self) -> bool {
        self.remote.keeps_deadlines()
    }

    fn give_up(&self, call: CallId) {
        self.remote.give_up(call);
    }

    fn reply(&self, call: CallId, outcome: Outcome) {
        if let Some(runtime) = self.me.upgrade() {
            self.when_unfenced(move || runtime.remote.reply(call, outcome));
        }
    }

    fn wake_at(&self, at: Time, waker: Waker) -> WakeId {
        self.timers.at(at, Due::Wake(waker))
    }

    fn cancel_wake(&self, wake: WakeId) {
        self.timers.cancel(wake);
    }

    fn default_deadline(&self) -> Option<Duration> {
        self.settings.default_deadline
    }
}
