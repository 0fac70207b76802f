//! Turns that share their actor, and take turns where they wait.
//!
//! ```text
//!   idle, or next in the mailbox                       begins beside them:
//!        │ lend                                        ├─ the next in the mailbox, if it shares too
//!        ▼                                             └─ a call that one of them waits for
//!   shared by turns that have begun  ◀─────────────────┘
//!        │ the last one is over, everything is saved
//!        ▼
//!   given back: settle
//! ```

use elastin_actor::{Finished, Handlers, Join, Posted, Scope, Share, SharedInstance};
use elastin_types::{ActorId, CallError, Caller};

use crate::cell::flags::Mark;
use crate::cell::interleave::state::{Interleaved, InterleavedTurn, Remains};
use crate::cell::mailbox::AnyTurn;
use crate::cell::run::saves_each_turn;
use crate::cell::state::CellGuard;
use crate::cell::{ActorCell, FREEZE, MAIL, REPORT, drop_contained};
use crate::scheduler::WakeMode;

impl<A: Handlers> ActorCell<A> {
    /// Whether the next message in the mailbox may begin beside turns that share the actor, and nobody is about to look.
    #[inline]
    pub(in crate::cell) fn may_begin_shared(&self, mailbox: &mut CellGuard<'_, A>) -> bool {
        if !A::SHARES || self.attention() & FREEZE != 0 {
            return false;
        }
        mailbox.rest_if_any().is_some_and(|rest| {
            let front = || rest.queue.front().is_some_and(|turn| turn.shared());
            let sharing = rest.sharing.as_ref();
            sharing.is_some_and(|sharing| !sharing.polled && sharing.has_room() && front())
        })
    }

    /// Something has changed that may let turns that share the actor go on.
    pub(in crate::cell) fn poll_interleaved(&self, mut mailbox: CellGuard<'_, A>) {
        let was_woken = mailbox.is(Mark::Woken);
        let sharing = mailbox.rest_if_any().and_then(|rest| rest.sharing.as_ref());
        let has_work = sharing.is_some_and(|sharing| !sharing.polled && (was_woken || sharing.has_work()));
        if has_work || self.may_begin_shared(&mut mailbox) {
            self.schedule(mailbox, WakeMode::Later);
        }
    }

    /// A call that a turn of this actor waits for: it begins beside that turn, if both share the actor.
    #[cold]
    pub(in crate::cell) fn push_into_cycle(
        &self,
        mut mailbox: CellGuard<'_, A>,
        call: &mut dyn Posted<A>,
    ) -> Result<(), CallError> {
        let rest = mailbox.rest();
        let caller = call.message_context().caller();
        let is_earlier = |turn: &AnyTurn<A>| {
            turn.message_context()
                .is_some_and(|message_context| message_context.caller() == caller)
        };
        let may_join = call.shared() && !rest.queue.iter().any(is_earlier);
        match &mut rest.sharing {
            Some(sharing) if may_join && sharing.has_room() => {
                sharing.join(call.boxed());
                self.poll_interleaved(mailbox);
                Ok(())
            }
            _ => Err(CallError::CallCycle),
        }
    }

    /// Whether a call may run right here, inside the poll of a turn that shares the actor.
    pub(in crate::cell) fn may_join(&self, depth: u32, sender: &ActorId) -> Join {
        if self.attention() & MAIL != 0 {
            let mut mailbox = self.lock();
            let is_senders = |caller: &Caller| matches!(caller, Caller::Actor(actor) if actor == sender);
            let is_earlier = |turn: &AnyTurn<A>| {
                turn.message_context()
                    .is_some_and(|message_context| is_senders(message_context.caller()))
            };
            let rest = mailbox.rest_if_any();
            if rest.is_some_and(|rest| rest.queue.iter().any(is_earlier)) {
                return Join::Refused(CallError::CallCycle);
            }
        }
        match self.may_run_inline(depth) {
            true => Join::Here,
            false => Join::Queued,
        }
    }

    /// A turn that ran on its caller's thread waits for something.
    pub(in crate::cell) fn suspend_interleaved(
        &self,
        shared: SharedInstance,
        turn: AnyTurn<A>,
        scope: Box<Scope>,
        share: Share,
    ) {
        let mut mailbox = self.lock();
        if mailbox.is(Mark::Orphan) {
            match share {
                Share::First => self.drop_shared(mailbox, shared),
                Share::Joined => drop(mailbox),
            }
            return self.tell_lost(turn);
        }
        let sharing = sharing(&mut mailbox, &shared);
        let place = sharing.reserve();
        // It was polled with the actor's own waker.
        let waker = None;
        let refused = self.put_interleaved(&mut mailbox, place, InterleavedTurn { turn, scope, waker });
        match share {
            Share::First => self.leave_sharing(mailbox, shared),
            Share::Joined => drop(mailbox),
        }
        refuse(refused);
    }

    /// A turn that ran on its caller's thread is over.
    pub(in crate::cell) fn finish_interleaved(
        &self,
        shared: SharedInstance,
        over: Option<AnyTurn<A>>,
        share: Share,
    ) -> Finished {
        let mut mailbox = self.lock();
        if mailbox.is(Mark::Orphan) {
            match share {
                Share::First => self.drop_shared(mailbox, shared),
                Share::Joined => drop(mailbox),
            }
            over.into_iter().for_each(|turn| self.tell_lost(turn));
            return Finished::Lost;
        }
        let is_broken = shared.is_broken();
        let mut over = over;
        if !is_broken && let Some(turn) = over.take() {
            // There may be nobody else; it still takes the one way to save.
            sharing(&mut mailbox, &shared);
            over = self.hold_unsaved(&mut mailbox, turn);
        }
        match share {
            Share::First => self.leave_sharing(mailbox, shared),
            Share::Joined => self.save_shared(mailbox),
        }
        if let Some(mut turn) = over {
            match is_broken {
                true => turn.as_mut().fail(CallError::Panicked),
                false => drop(self.reply(turn)),
            }
        }
        match (is_broken, self.shared.scheduler.is_fenced()) {
            (true, _) => Finished::Broken,
            (false, true) => Finished::Hold,
            (false, false) => Finished::Reply,
        }
    }

    /// Keeps a turn that waits for something. Gives calls in the mailbox that would wait for themselves.
    pub(in crate::cell) fn put_interleaved(
        &self,
        mailbox: &mut CellGuard<'_, A>,
        place: usize,
        interleaved_turn: InterleavedTurn<A>,
    ) -> Vec<AnyTurn<A>> {
        let rest = mailbox.rest();
        let sharing = rest.sharing.as_mut().expect("who polls keeps it there");
        let chain = interleaved_turn.scope.chain();
        let is_new = sharing.put(place, interleaved_turn);
        match chain.filter(|_| is_new) {
            Some(chain) => rest.take_cycles(chain),
            None => Vec::new(),
        }
    }

    /// Keeps a turn that is over if it may have seen what is not saved yet; else gives it back.
    pub(in crate::cell) fn hold_unsaved(&self, mailbox: &mut CellGuard<'_, A>, turn: AnyTurn<A>) -> Option<AnyTurn<A>> {
        if !saves_each_turn::<A>() {
            return Some(turn);
        }
        let sharing = mailbox.rest().sharing.as_mut().expect("who polls keeps it there");
        match &mut sharing.saving {
            _ if sharing.shared.is_changed() => sharing.unsaved.push(turn),
            Some((_, waiting)) => waiting.push(turn),
            None => return Some(turn),
        }
        None
    }

    /// Whoever polled a turn is done with that: others may go on, or the actor is whole again.
    pub(in crate::cell) fn leave_sharing(&self, mut mailbox: CellGuard<'_, A>, shared: SharedInstance) {
        let Some(sharing) = mailbox.rest().sharing.as_mut() else {
            unreachable!("an actor that others have a share of keeps track of them");
        };
        sharing.polled = false;
        if sharing.lost.is_some() || shared.is_broken() {
            return self.lose_shared(mailbox, shared);
        }
        if self.attention() & REPORT != 0 {
            self.lower(REPORT);
            self.note(&shared.instance::<A>().state);
        }
        if sharing.is_over() {
            mailbox.rest().sharing = None;
            let Ok(instance) = shared.give_back() else {
                unreachable!("a turn that is over has given its share back");
            };
            return self.settle(mailbox, instance);
        }
        // Under the lock: whoever ends the last turn gets the actor back only if nobody else has a share.
        drop(shared);
        self.save_shared(mailbox);
    }

    /// Nobody may rely on the actor any longer: it starts again from what was saved.
    pub(in crate::cell) fn lose_shared(&self, mut mailbox: CellGuard<'_, A>, shared: SharedInstance) {
        let rest = mailbox.rest();
        let sharing = rest.sharing.take().expect("a shared actor is lost");
        let error = sharing.lost.clone().unwrap_or(CallError::Panicked);
        let Remains {
            waiting,
            unsaved,
            joining,
        } = sharing.into_remains();
        for turn in joining.into_iter().rev() {
            rest.queue.push_front(turn);
        }
        drop(mailbox);
        unsaved.into_iter().for_each(|turn| self.not_saved(turn));
        for mut turn in waiting {
            let error = error.clone();
            self.shared.when_unfenced(move || {
                turn.as_mut().fail(error);
                drop_contained(turn);
            });
        }
        drop_contained(shared);
        self.lose(None);
    }

    /// The turn that was polled was the last of a discarded activation.
    pub(in crate::cell) fn drop_shared(&self, mut mailbox: CellGuard<'_, A>, shared: SharedInstance) {
        match self.orphan_is_gone(&mut mailbox) {
            Some(next) => self.settle(mailbox, next),
            None => drop(mailbox),
        }
        drop_contained(shared);
    }
}

/// The turns that share an actor, of whom one is just being polled.
fn sharing<'a, A: Handlers>(mailbox: &'a mut CellGuard<'_, A>, shared: &SharedInstance) -> &'a mut Interleaved<A> {
    let known = &mut mailbox.rest().sharing;
    known.get_or_insert_with(|| Box::new(Interleaved::new(shared.clone(), true)))
}

/// Ends calls that would wait for themselves.
pub(in crate::cell) fn refuse<A>(calls: Vec<AnyTurn<A>>) {
    for mut call in calls {
        call.as_mut().fail(CallError::CallCycle);
    }
}
