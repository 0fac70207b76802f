//! An actor's place on this node: where its activations come and go, and where references lead.
//!
//! ```text
//!            inline call                    mailbox
//!                │                             │
//!   take from the idle cell          push under the lock, take the body
//!   (one atomic swap)                out of the idle cell, schedule
//!                │                             │
//!                ▼                             ▼
//!          run on the caller's          a worker runs a batch
//!          thread, give back                   │
//!                └──────────▶ settle ◀─────────┘
//!                 freeze? mail? end? else idle again
//! ```

mod life;
mod moves;
mod report;
mod run;
mod save;
mod timer;

use std::any::Any;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use bytes::Bytes;
use elastin_actor::{
    Body, Finished, Handlers, Host, Posted, ReminderDone, ReminderRequest, SaveDone, Scope, Seat, Target, Timer,
    TimerId, Turn, TurnMeasure, UsedSince,
};
use elastin_types::{ActivationEpoch, ActorId, CallError, Method, NodeId, NotDelivered, Overloaded, Time};
use parking_lot::{Mutex, MutexGuard};

use crate::any_seat::{AnySeat, Load, Period};
use crate::idle_cell::IdleCell;
use crate::mailbox::{Ending, Mailbox, Suspended};
use crate::profile_cell::ProfileCell;
use crate::queue::AnyTurn;
use crate::scheduler::{Announce, Runnable};
use crate::settings::INLINE_DEPTH_MAX;
use crate::shared::Shared;
use crate::{ActivateError, FreezeDone, Mail, StateImage};

/// There is mail.
const MAIL: u8 = 1;
/// There is no activation.
const INACTIVE: u8 = 2;
/// A freeze is asked for.
const FREEZE: u8 = 4;
/// The activation is to end.
const END: u8 = 8;
/// A snapshot wants to know the state's size and references after the present turn.
const REPORT: u8 = 16;
/// A turn of a discarded activation still runs.
const ORPHAN: u8 = 32;

/// How many turns go unmeasured at a time without profiling: as many as can be counted.
const UNMEASURED: u16 = u16::MAX;

/// How many messages come together in a mailbox before another worker is woken for a tell.
const NUDGE_AT: usize = 16;

/// The place of one actor on this node.
pub(crate) struct ActorSeat<A: Handlers> {
    id: ActorId,
    shared: Arc<Shared>,
    me: Weak<Self>,
    idle: IdleCell<Body<A>>,
    mailbox: Mutex<Mailbox<A>>,
    // Apart from the mailbox, because turns that run inline report here without touching that.
    profile: ProfileCell,
}

impl<A: Handlers> ActorSeat<A> {
    /// The empty seat of an actor.
    pub(crate) fn make(id: ActorId, shared: Arc<Shared>) -> Arc<dyn AnySeat> {
        Arc::new_cyclic(|me| Self {
            id,
            shared,
            me: me.clone(),
            idle: IdleCell::new(INACTIVE),
            mailbox: Mutex::new(Mailbox::new()),
            profile: ProfileCell::default(),
        })
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("a seat that is used exists")
    }

    fn attention(&self) -> u8 {
        self.idle.attention()
    }

    fn raise(&self, bits: u8) {
        self.idle.raise(bits);
    }

    fn lower(&self, bits: u8) {
        self.idle.lower(bits);
    }

    /// Decides what becomes of an actor that is between two turns.
    fn settle(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, mut body: Box<Body<A>>) {
        if mailbox.epoch != Some(body.epoch) {
            return self.bury(mailbox, body);
        }
        let attention = self.attention();
        if attention & REPORT != 0 {
            self.lower(REPORT);
            self.note_state(&mut body);
        }
        if attention & FREEZE != 0 {
            return self.freeze_at_boundary(mailbox, body);
        }
        if mailbox.queued() > 0 {
            mailbox.waiting = Some(body);
            return self.schedule(mailbox, Announce::Later);
        }
        if attention & END != 0 {
            return self.end(mailbox, body);
        }
        self.idle.set_attention(0);
        self.idle.put(body);
    }

    /// Drops the body of an activation that was discarded during its turn; a later activation may then go on.
    fn bury(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, body: Box<Body<A>>) {
        let next = self.orphan_is_gone(&mut mailbox);
        match next {
            Some(next) => self.settle(mailbox, next),
            None => drop(mailbox),
        }
        drop_contained(body);
    }

    /// The last turn of a discarded activation is over; gives the body of the activation that waited for that.
    fn orphan_is_gone(&self, mailbox: &mut Mailbox<A>) -> Option<Box<Body<A>>> {
        mailbox.orphan = false;
        self.lower(ORPHAN);
        mailbox.waiting.take()
    }

    /// Puts the seat into a run queue if a body or a woken turn waits for a worker, and it is not there already.
    fn schedule(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, announce: Announce) {
        if mailbox.scheduled || mailbox.orphan {
            return;
        }
        mailbox.scheduled = true;
        drop(mailbox);
        self.shared.scheduler.schedule(self.arc(), announce);
    }

    /// Puts a call into the mailbox of an active actor.
    #[inline]
    fn push(
        &self,
        mut mailbox: MutexGuard<'_, Mailbox<A>>,
        call: &mut dyn Posted<A>,
        room: Option<&Waker>,
    ) -> Result<(), CallError> {
        let one_way = call.carried().one_way();
        if !one_way
            && let Some(chain) = mailbox.suspended_chain()
            && call.carried().chain() == Some(chain)
        {
            return Err(CallError::CallCycle);
        }
        let rest = mailbox.rest();
        if rest.queue.len() >= self.shared.settings.mailbox_max {
            if let Some(room) = room
                && !rest.room.iter().any(|known| known.will_wake(room))
            {
                rest.room.push(room.clone());
            }
            self.shared.overloads.fetch_add(1, Ordering::Relaxed);
            return Err(CallError::Overloaded(Overloaded::Actor));
        }
        rest.queue.push(call);
        let queued = rest.queue.len();
        // Where there was mail before, whoever has the body knows already.
        if self.attention() & MAIL == 0 {
            // Inside the lock: an inline call that the sender makes after this must see that there is mail before it.
            self.raise(MAIL);
            if let Some(body) = self.idle.take() {
                mailbox.waiting = Some(body);
            }
        }
        // Who calls waits, and its thread is free for this actor. Who tells goes on: when some mail has come together,
        // another worker should begin with it, but not for every single message.
        let nudge = one_way && queued == NUDGE_AT;
        if mailbox.waiting.is_some() && !mailbox.scheduled {
            self.schedule(mailbox, if nudge { Announce::Now } else { Announce::Later });
        } else {
            drop(mailbox);
        }
        if nudge {
            // Its backlog counts, even if no turn of it ends in this period.
            self.profile.change(|profile| {
                profile.tables(|| self.is_busy());
            });
            self.shared.scheduler.wake_one();
        }
        Ok(())
    }

    /// Sends a turn to wherever the actor is.
    fn send_out(&self, turn: AnyTurn<A>) {
        if let Some((message, reply)) = turn.encode(&self.id, &*self.shared) {
            self.shared.send(message, reply);
        }
    }

    /// Sends a turn's reply and gives back the turn, unless the node is fenced: then the reply leaves later.
    #[inline]
    fn reply(&self, mut turn: AnyTurn<A>) -> Option<AnyTurn<A>> {
        if self.shared.scheduler.is_fenced() {
            self.shared.when_unfenced(move || turn.as_mut().reply());
            return None;
        }
        turn.as_mut().reply();
        Some(turn)
    }

    /// Takes the actor although it is not idle, if all it needs is to be activated.
    #[cold]
    fn begin_inactive(&self) -> Option<Box<Body<A>>> {
        if self.attention() & INACTIVE == 0 || self.shared.is_stopped() {
            return None;
        }
        let grant = self.shared.outside.may_activate_here(&self.id)?;
        match self.activate_from(grant.epoch, grant.image, Vec::new()) {
            // Somebody else was quicker: the actor is active, which is what counts.
            Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => self.idle.take(),
            Err((error, _)) => {
                tracing::error!(actor = ?self.id, %error, "an actor can't be activated");
                None
            }
        }
    }
}

impl<A: Handlers> Seat for ActorSeat<A> {
    fn id(&self) -> &ActorId {
        &self.id
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    fn node(&self) -> NodeId {
        self.shared.settings.node
    }

    fn host(&self) -> Arc<dyn Host> {
        self.shared.clone()
    }

    fn describe(&self, function: Option<Method>) -> String {
        let schema = &self.shared.schema;
        let Some(function) = function else {
            return schema.show(&self.id);
        };
        let functions = schema
            .actor_of(self.id.kind)
            .into_iter()
            .flat_map(|kind| &kind.functions);
        let mut functions = functions;
        let known = functions.find(|known| known.method() == function);
        known.map_or_else(|| format!("#{:08x}", function.number()), |known| known.name.clone())
    }

    fn record_turn(&self, turn: &TurnMeasure) -> u16 {
        if !self.shared.settings.profiling {
            return UNMEASURED;
        }
        self.profile
            .change(|profile| profile.tables(|| self.is_busy()).turn(turn))
    }

    fn record_call(&self, callee: &ActorId, method: Method, bytes: u64, weight: u32) {
        self.profile.change(|profile| {
            let tables = profile.tables(|| self.is_busy());
            tables.call(callee, method, bytes, weight);
        });
    }

    fn deactivate(&self) {
        let mut mailbox = self.mailbox.lock();
        if mailbox.epoch.is_some() && mailbox.rest().ending == Ending::No {
            mailbox.rest().ending = Ending::Asked;
            self.raise(END);
        }
    }

    fn save_state(&self, state: Bytes, done: SaveDone) {
        self.save_during_turn(state, done);
    }

    fn remind(&self, request: ReminderRequest, done: ReminderDone) {
        match request.check(A::NAME, A::takes_reminders()) {
            Ok(()) => self.shared.outside.remind(&self.id, request, done),
            Err(error) => done(Err(error)),
        }
    }

    fn start_timer(&self, timer: Timer) -> TimerId {
        self.add_timer(timer)
    }

    fn stop_timer(&self, timer: TimerId) {
        self.remove_timer(timer);
    }
}

impl<A: Handlers> Target<A> for ActorSeat<A> {
    fn begin(&self, depth: u32) -> Option<Box<Body<A>>> {
        let scheduler = &self.shared.scheduler;
        if scheduler.is_fenced() || depth >= INLINE_DEPTH_MAX || !inline_budget(depth) {
            return None;
        }
        // Outside a turn, the thread may be anybody's: only workers keep to a CPU share, and handlers may need tokio.
        if depth == 0 && (scheduler.is_limited() || tokio::runtime::Handle::try_current().is_err()) {
            return None;
        }
        let body = match self.idle.take() {
            Some(body) => body,
            None => self.begin_inactive()?,
        };
        if self.attention() != 0 {
            self.settle(self.mailbox.lock(), body);
            return None;
        }
        Some(body)
    }

    fn finish(&self, body: Box<Body<A>>) -> Finished {
        let epoch = body.epoch;
        self.idle.put(body);
        if self.attention() != 0 && !self.look_again(epoch) {
            return Finished::Lost;
        }
        if self.shared.scheduler.is_fenced() {
            return Finished::Hold;
        }
        Finished::Reply
    }

    fn finish_saved(&self, body: Box<Body<A>>, turn: Pin<Box<dyn Turn<A>>>) {
        self.save(self.mailbox.lock(), body, vec![turn]);
    }

    fn suspend(&self, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>, waker: Waker) {
        self.suspend_turn(self.mailbox.lock(), Suspended { turn, scope, waker });
    }

    fn panicked(&self) {
        self.count_panic();
        self.lose(None);
    }

    fn hold_reply(&self, turn: Pin<Box<dyn Turn<A>>>) {
        self.reply(turn);
    }

    fn post(&self, call: &mut dyn Posted<A>, room: Option<&Waker>) -> Result<(), CallError> {
        loop {
            let mailbox = self.mailbox.lock();
            if mailbox.epoch.is_some() || mailbox.rerouting {
                return self.push(mailbox, call, room);
            }
            drop(mailbox);
            if self.shared.is_stopped() {
                return Err(CallError::NotDelivered(NotDelivered::ShuttingDown));
            }
            let Some(grant) = self.shared.outside.may_activate_here(&self.id) else {
                self.send_out(call.boxed());
                return Ok(());
            };
            match self.activate_from(grant.epoch, grant.image, Vec::new()) {
                Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => {}
                Err((error, _)) => {
                    tracing::error!(actor = ?self.id, %error, "an actor can't be activated");
                    return Err(CallError::NotDelivered(NotDelivered::StateUnavailable));
                }
            }
        }
    }
}

impl<A: Handlers> Wake for ActorSeat<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut mailbox = self.mailbox.lock();
        mailbox.woken = true;
        if mailbox.is_suspended() && !mailbox.scheduled {
            mailbox.scheduled = true;
            drop(mailbox);
            self.shared.scheduler.schedule(self.clone(), Announce::Later);
        }
    }
}

impl<A: Handlers> Runnable for ActorSeat<A> {
    fn run(self: Arc<Self>) {
        self.visit();
    }
}

impl<A: Handlers> AnySeat for ActorSeat<A> {
    fn target(self: Arc<Self>) -> Box<dyn Any> {
        let target: Arc<dyn Target<A>> = self;
        Box::new(target)
    }

    fn is_empty(&self) -> bool {
        let mailbox = self.mailbox.lock();
        mailbox.epoch.is_none() && !mailbox.rerouting && !mailbox.orphan && !mailbox.scheduled
    }

    fn epoch(&self) -> Option<ActivationEpoch> {
        self.mailbox.lock().epoch
    }

    fn deliver(&self, mail: Mail, epoch: ActivationEpoch) -> Result<(), Box<Mail>> {
        self.deliver_mail(mail, epoch)
    }

    fn activate(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        mail: Vec<Mail>,
    ) -> Result<(), (ActivateError, Vec<Mail>)> {
        self.activate_from(epoch, image, mail)
    }

    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        self.ask_freeze(epoch, deadline, done);
    }

    fn resume(&self, epoch: ActivationEpoch) -> bool {
        self.unfreeze(epoch)
    }

    fn release(&self, epoch: ActivationEpoch) -> Option<Vec<Mail>> {
        self.release_frozen(epoch)
    }

    fn discard(&self, epoch: ActivationEpoch) -> Vec<Mail> {
        self.discard_activation(epoch)
    }

    fn passivate_if_unused(&self) {
        let Some(mut body) = self.idle.take() else { return };
        let unused = !body.used.take(UsedSince::SWEEP);
        if unused {
            self.deactivate();
            self.mailbox.lock().shrink();
        }
        self.finish(body);
    }

    fn deactivate_when_idle(&self) {
        self.deactivate();
        if let Some(body) = self.idle.take() {
            self.finish(body);
        }
    }

    fn report(&self, listed: bool, period: Period) -> Option<(Option<elastin_types::ActorStats>, Load)> {
        self.make_report(listed, period)
    }

    fn report_idle(&self, period: Period) -> Option<elastin_types::ActorStats> {
        self.make_idle_report(period)
    }

    fn tear_down(&self) {
        self.tear_down_activation();
    }

    fn is_at_rest(&self) -> bool {
        let mailbox = self.mailbox.lock();
        mailbox.epoch.is_none() && !mailbox.rerouting
            || (mailbox.queued() == 0 && self.attention() & (MAIL | END | FREEZE) == 0 && self.peek_idle())
    }
}

impl<A: Handlers> ActorSeat<A> {
    /// Something wants to be done before the next turn; the body was just put into the idle cell. Says whether its activation
    /// still is.
    #[cold]
    fn look_again(&self, epoch: ActivationEpoch) -> bool {
        match self.idle.take() {
            Some(body) => {
                let mailbox = self.mailbox.lock();
                let is_active = mailbox.epoch == Some(epoch);
                self.settle(mailbox, body);
                is_active
            }
            // Whoever took it out has seen to it.
            None => true,
        }
    }

    /// Whether the actor is idle right now. Looks by taking it out and putting it back.
    fn peek_idle(&self) -> bool {
        // The mailbox is locked by the caller: an inline call that misses the body meanwhile queues behind the lock.
        match self.idle.take() {
            Some(body) => {
                self.idle.put(body);
                true
            }
            None => false,
        }
    }
}

/// How many inline calls a thread makes within turns before one takes the mailbox, so that a turn which does nothing but call
/// idle actors lets go of its worker at times.
const INLINE_CALLS_MAX: u32 = 1024;

/// The same for threads outside, which have other tasks to run.
const INLINE_CALLS_OUTSIDE_MAX: u32 = 128;

thread_local! {
    static INLINE_CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Whether the next call of this thread may run inline.
fn inline_budget(depth: u32) -> bool {
    let made = INLINE_CALLS.get();
    let max = if depth == 0 {
        INLINE_CALLS_OUTSIDE_MAX
    } else {
        INLINE_CALLS_MAX
    };
    let within = made < max;
    INLINE_CALLS.set(if within { made + 1 } else { 0 });
    within
}

/// Drops what an application's code may panic in the drop of.
fn drop_contained<T>(value: T) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(value))).is_err() {
        tracing::error!("an actor's state panicked when it was dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_small() {
        #[derive(elastin_actor::Actor, serde::Serialize, serde::Deserialize, Default)]
        struct Nothing {}
        #[elastin_actor::handlers]
        impl Nothing {}
        // With what an `Arc` and an allocator add this is 144 bytes, a size that allocators have. There are very many.
        assert!(
            size_of::<ActorSeat<Nothing>>() <= 120,
            "{}",
            size_of::<ActorSeat<Nothing>>()
        );
        assert!(size_of::<Body<u64>>() <= 56, "{}", size_of::<Body<u64>>());
    }

    #[test]
    fn the_idle_cell_is_a_plain_atomic() {
        // Inline calls rely on this for their speed: any other cell would take a lock.
        assert!(crossbeam_utils::atomic::AtomicCell::<Option<Box<u64>>>::is_lock_free());
    }
}
