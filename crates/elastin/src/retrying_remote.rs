//! Retries calls of a client that certainly have not run, and sends them as the client's current member.
//!
//! ```text
//!   runtime ── send ──► RetryingRemote ── send ──► node driver ──► cluster
//!                          ▲   └── after a backoff ──┐     │
//!                          └──── NotDelivered ───────┴─────┘
//! ```
//!
//! Each attempt is a message of its own, with its own id, because the order of a path is kept by the fate of each
//! message. A retried call therefore arrives after the messages that the client has sent to the actor meanwhile.
//!
//! A client that loses its lease rejoins as a new member with a new id. Its runtime stays, and with it the
//! application's clients and references: outbound messages are stamped with the current member's id here.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use elastin_actor::{Host, ReminderDone, ReminderRequest, ReplySender, RetryHook};
use elastin_clock::Clock;
use elastin_runtime::{Grant, Remote, SaveDone};
use elastin_types::{
    ActivationEpoch, ActorId, CallError, CallId, Caller, ChainId, Message, NodeId, NotDelivered, Outcome, Time,
};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

/// The first backoff: about the time that a cluster needs to agree on a change.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest backoff, so that a call resumes soon after the cause is gone.
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// The time limit of retries of a call whose deadline is later: a fault that lasts longer, such as a damaged state,
/// needs more than retries.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);

/// A client's [`Remote`] that retries calls which were not delivered.
pub(crate) struct RetryingRemote {
    /// The client's current member. Between two members, the ended one rejects every message.
    incarnation: RwLock<Incarnation>,
    handle: Handle,
    clock: Clock,
    /// Set once the runtime exists. Weak, because the runtime owns this.
    host: OnceLock<Weak<dyn Host>>,
    /// Calls that are being retried: the sequence number that the caller knows, and the id of the current attempt.
    retrying: Mutex<HashMap<u64, CallId>>,
    this: Weak<RetryingRemote>,
}

/// One membership of the client, from a join to the loss of the lease.
#[derive(Clone)]
struct Incarnation {
    me: NodeId,
    remote: Arc<dyn Remote>,
}

impl Incarnation {
    /// Makes this member the origin of a message.
    fn stamp(&self, message: &mut Arc<Message>) {
        if message.header.call.origin == self.me {
            return;
        }
        let header = &mut Arc::make_mut(message).header;
        // Sequence numbers of calls are unique in this process, so they identify the call in this incarnation too.
        header.call = self.own(header.call);
        header.chain = ChainId(self.own(header.chain.0));
        header.caller = Caller::Client(self.me);
    }

    /// The id of one of the client's calls in this incarnation.
    fn own(&self, call: CallId) -> CallId {
        CallId {
            origin: self.me,
            ..call
        }
    }
}

/// A call that is being retried.
struct Attempt {
    message: Arc<Message>,
    reply: ReplySender,
    /// The sequence number that the caller knows: that of the first attempt.
    first: u64,
    /// The backoff before the next attempt.
    backoff: Duration,
    /// When retries end.
    until: Time,
}

impl RetryingRemote {
    /// Wraps the remote of the client's first member. Must be called inside a tokio runtime, which runs the backoff
    /// timers.
    pub(crate) fn over(me: NodeId, remote: Arc<dyn Remote>, clock: Clock) -> Arc<RetryingRemote> {
        Arc::new_cyclic(|this| RetryingRemote {
            incarnation: RwLock::new(Incarnation { me, remote }),
            handle: Handle::current(),
            clock,
            host: OnceLock::new(),
            retrying: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Sets the source of call ids. Until then nothing is retried.
    pub(crate) fn attach(&self, host: &Arc<dyn Host>) {
        assert!(self.host.set(Arc::downgrade(host)).is_ok(), "a client has one runtime");
    }

    /// Sends as another member from now on. Calls of the previous member must have ended, or must end by themselves.
    pub(crate) fn switch_to(&self, me: NodeId, remote: Arc<dyn Remote>) {
        *self.incarnation.write() = Incarnation { me, remote };
    }

    fn current(&self) -> Incarnation {
        self.incarnation.read().clone()
    }

    fn attempt(&self, mut attempt: Attempt) {
        let current = self.current();
        current.stamp(&mut attempt.message);
        let message = Arc::clone(&attempt.message);
        let this = self.this.clone();
        let ended = move |outcome: Outcome| match (outcome, this.upgrade()) {
            (Err(CallError::NotDelivered(why)), Some(this)) => this.retry_later(attempt, why),
            (outcome, this) => {
                if let Some(this) = this {
                    this.retrying.lock().remove(&attempt.first);
                }
                attempt.reply.complete(outcome);
            }
        };
        current.remote.send(message, Some(ReplySender::new(ended)));
    }

    /// Retries a call after its backoff, or fails it if its time is up by then.
    fn retry_later(self: Arc<Self>, mut attempt: Attempt, why: NotDelivered) {
        let now = self.clock.now();
        // Jitter: calls that were rejected together do not retry together.
        let jitter = attempt.backoff / 8 * (attempt.first % 8) as u32;
        let backoff = attempt.backoff + jitter;
        let host = self.host.get().and_then(Weak::upgrade);
        let Some(host) = host.filter(|_| now + backoff < attempt.until) else {
            self.retrying.lock().remove(&attempt.first);
            return attempt.reply.complete(Err(CallError::NotDelivered(why)));
        };
        attempt.backoff = (attempt.backoff * 2).min(BACKOFF_MAX);
        let this = Arc::clone(&self);
        let sleeper = self.clock.sleeper("a call in backoff");
        self.handle.spawn(async move {
            sleeper.sleep_until(Some(now + backoff)).await;
            let call = host.next_call();
            // A caller that gave up meanwhile has removed the entry.
            if let Some(current) = this.retrying.lock().get_mut(&attempt.first) {
                *current = call;
            } else {
                return;
            }
            Arc::make_mut(&mut attempt.message).header.call = call;
            this.attempt(attempt);
        });
    }
}

impl RetryHook for RetryingRemote {
    fn not_delivered(self: Arc<Self>, message: Arc<Message>, reply: ReplySender, why: NotDelivered) {
        let call = message.header.call;
        let deadline = message.header.deadline.unwrap_or(Time(u64::MAX));
        let attempt = Attempt {
            first: call.sequence,
            reply,
            backoff: BACKOFF_MIN,
            until: deadline.min(self.clock.now() + RETRY_TIME_MAX),
            message,
        };
        self.retrying.lock().insert(call.sequence, call);
        self.retry_later(attempt, why);
    }
}

impl Remote for RetryingRemote {
    fn may_activate_here(&self, actor: &ActorId) -> Option<Grant> {
        self.current().remote.may_activate_here(actor)
    }

    fn send(&self, mut message: Arc<Message>, reply: Option<ReplySender>) {
        let current = self.current();
        current.stamp(&mut message);
        // One-way messages are not retried: their senders never learn that they were not delivered.
        let reply = reply.map(|reply| reply.made_again(self.this.clone(), Arc::clone(&message)));
        current.remote.send(message, reply);
    }

    fn keeps_deadlines(&self) -> bool {
        // The protocol enforces them in every incarnation, and no attempt starts after the deadline.
        true
    }

    fn give_up(&self, call: CallId) {
        let call = self.retrying.lock().remove(&call.sequence).unwrap_or(call);
        // Calls of an earlier incarnation have ended already, so the current one is the right one.
        let current = self.current();
        current.remote.give_up(current.own(call));
    }

    fn reply(&self, call: CallId, outcome: Outcome) {
        self.current().remote.reply(call, outcome);
    }

    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        self.current().remote.save(actor, epoch, state, done);
    }

    fn remind(&self, actor: &ActorId, request: ReminderRequest, done: ReminderDone) {
        self.current().remote.remind(actor, request, done);
    }

    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        self.current().remote.last_known_node(actor)
    }

    fn passivated(&self, actor: &ActorId, epoch: ActivationEpoch) {
        self.current().remote.passivated(actor, epoch);
    }
}
