//! What makes a client's calls again that certainly have not run, and sends them as the member that the client is at present.
//!
//! ```text
//!   runtime ── send ──► RetryingRemote ── send ──► peer ──► cluster
//!                          ▲   └── after a pause ──┐     │
//!                          └──── NotDelivered ─────┴─────┘
//! ```
//!
//! Each try is a message of its own, with an id of its own: paths are kept in order by what becomes of each message. So a call
//! that is made again comes after what the client has sent to the actor meanwhile.
//!
//! A client that loses its lease joins again as a new member, with a new id. Its runtime, and so all that the application has
//! of it, stays as it is: what it sends gets the present member's id here, on its way out.

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

/// How long to wait before the first further try: about what a cluster needs to agree on a change.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// How long to wait at most, however many tries there were: nobody wants to wait much longer for what is mended.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long a call is made again, if its deadline is not before: what is wrong for longer, such as a damaged state, is not
/// mended by trying.
const TRIES_TIME_MAX: Duration = Duration::from_secs(20);

/// The world of a client: as it is, except that calls that were not delivered are made again.
pub(crate) struct RetryingRemote {
    /// What the client is a member as. While it is none, whatever is sent comes back.
    life: RwLock<Incarnation>,
    handle: Handle,
    clock: Clock,
    /// Set once, when there is a runtime. It knows this in turn.
    host: OnceLock<Weak<dyn Host>>,
    /// Calls that are being made again, by the number that their callers know: the id of the present try.
    again: Mutex<HashMap<u64, CallId>>,
    this: Weak<RetryingRemote>,
}

/// One time for which the client is a member.
#[derive(Clone)]
struct Incarnation {
    me: NodeId,
    outside: Arc<dyn Remote>,
}

impl Incarnation {
    /// Lets a message come from this member, whichever it was made for.
    fn stamp(&self, message: &mut Arc<Message>) {
        if message.header.call.origin == self.me {
            return;
        }
        let header = &mut Arc::make_mut(message).header;
        // Numbers of calls are never used again in this process, so they name the call in this life as well.
        header.call = self.own(header.call);
        header.chain = ChainId(self.own(header.chain.0));
        header.caller = Caller::Client(self.me);
    }

    /// What a call of this client is called in this life.
    fn own(&self, call: CallId) -> CallId {
        CallId {
            origin: self.me,
            ..call
        }
    }
}

/// A call that is made again.
struct Attempt {
    message: Arc<Message>,
    reply: ReplySender,
    /// The number that its caller knows.
    first: u64,
    /// How long to wait if it is not delivered.
    pause: Duration,
    /// When it is not made again any more.
    until: Time,
}

impl RetryingRemote {
    /// For a client that is this member at first. Must be called inside a tokio runtime, whose tasks wait between tries.
    pub(crate) fn over(me: NodeId, outside: Arc<dyn Remote>, clock: Clock) -> Arc<RetryingRemote> {
        Arc::new_cyclic(|this| RetryingRemote {
            life: RwLock::new(Incarnation { me, outside }),
            handle: Handle::current(),
            clock,
            host: OnceLock::new(),
            again: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Says what gives calls their ids. Until then nothing is made again.
    pub(crate) fn attach(&self, host: &Arc<dyn Host>) {
        assert!(self.host.set(Arc::downgrade(host)).is_ok(), "a client has one runtime");
    }

    /// The client is another member from now on. What it sent as the one before must have ended, or must end by itself.
    pub(crate) fn turn_to(&self, me: NodeId, outside: Arc<dyn Remote>) {
        *self.life.write() = Incarnation { me, outside };
    }

    fn life(&self) -> Incarnation {
        self.life.read().clone()
    }

    /// Makes a call once more.
    fn attempt(&self, mut attempt: Attempt) {
        let life = self.life();
        life.stamp(&mut attempt.message);
        let message = Arc::clone(&attempt.message);
        let this = self.this.clone();
        let ended = move |outcome: Outcome| match (outcome, this.upgrade()) {
            (Err(CallError::NotDelivered(why)), Some(this)) => this.try_later(attempt, why),
            (outcome, this) => {
                if let Some(this) = this {
                    this.again.lock().remove(&attempt.first);
                }
                attempt.reply.complete(outcome);
            }
        };
        life.outside.send(message, Some(ReplySender::new(ended)));
    }

    /// Makes a call again after a while, or lets its caller know if it is too late for that.
    fn try_later(self: Arc<Self>, mut attempt: Attempt, why: NotDelivered) {
        let now = self.clock.now();
        // Those who were refused together do not come back together.
        let spread = attempt.pause / 8 * (attempt.first % 8) as u32;
        let pause = attempt.pause + spread;
        let host = self.host.get().and_then(Weak::upgrade);
        let Some(host) = host.filter(|_| now + pause < attempt.until) else {
            self.again.lock().remove(&attempt.first);
            return attempt.reply.complete(Err(CallError::NotDelivered(why)));
        };
        attempt.pause = (attempt.pause * 2).min(PAUSE_MAX);
        let this = Arc::clone(&self);
        let sleeper = self.clock.sleeper("a call that is made again");
        self.handle.spawn(async move {
            sleeper.sleep_until(Some(now + pause)).await;
            let call = host.next_call();
            // Whoever gave it up meanwhile has taken it out.
            if let Some(present) = this.again.lock().get_mut(&attempt.first) {
                *present = call;
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
            pause: PAUSE_MIN,
            until: deadline.min(self.clock.now() + TRIES_TIME_MAX),
            message,
        };
        self.again.lock().insert(call.sequence, call);
        self.try_later(attempt, why);
    }
}

impl Remote for RetryingRemote {
    fn may_activate_here(&self, actor: &ActorId) -> Option<Grant> {
        self.life().outside.may_activate_here(actor)
    }

    fn send(&self, mut message: Arc<Message>, reply: Option<ReplySender>) {
        let life = self.life();
        life.stamp(&mut message);
        // Nobody would hear that a tell was not delivered.
        let reply = reply.map(|reply| reply.made_again(self.this.clone(), Arc::clone(&message)));
        life.outside.send(message, reply);
    }

    fn keeps_deadlines(&self) -> bool {
        // In every life the protocol does, and no try is made later.
        true
    }

    fn give_up(&self, call: CallId) {
        let present = self.again.lock().remove(&call.sequence).unwrap_or(call);
        let life = self.life();
        // A call of an earlier life has ended.
        life.outside.give_up(life.own(present));
    }

    fn reply(&self, call: CallId, outcome: Outcome) {
        self.life().outside.reply(call, outcome);
    }

    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        self.life().outside.save(actor, epoch, state, done);
    }

    fn remind(&self, actor: &ActorId, request: ReminderRequest, done: ReminderDone) {
        self.life().outside.remind(actor, request, done);
    }

    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        self.life().outside.last_known_node(actor)
    }

    fn passivated(&self, actor: &ActorId, epoch: ActivationEpoch) {
        self.life().outside.passivated(actor, epoch);
    }
}
