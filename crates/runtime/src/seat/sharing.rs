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

use elastin_actor::{Finished, Handlers, Join, Lent, Posted, Scope, Share};
use elastin_types::{ActorId, CallError, Caller};

use super::run::saves_each_turn;
use super::{ActorSeat, FREEZE, MAIL, REPORT, drop_contained};
use crate::mailbox::Mailbox;
use crate::marks::Mark;
use crate::queue::AnyTurn;
use crate::scheduler::Announce;
use crate::sharing::{Remains, Sharer, Sharing};

impl<A: Handlers> ActorSeat<A> {
    /// Whether the next message in the mailbox may begin beside turns that share the actor, and nobody is about to look.
    #[inline]
    pub(super) fn may_begin_shared(&self, mailbox: &mut Mailbox<'_, A>) -> bool {
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
    pub(super) fn look_at_sharers(&self, mut mailbox: Mailbox<'_, A>) {
        let was_woken = mailbox.is(Mark::Woken);
        let sharing = mailbox.rest_if_any().and_then(|rest| rest.sharing.as_ref());
        let has_work = sharing.is_some_and(|sharing| !sharing.polled && (was_woken || sharing.has_work()));
        if has_work || self.may_begin_shared(&mut mailbox) {
            self.schedule(mailbox, Announce::Later);
        }
    }

    /// A call that a turn of this actor waits for: it begins beside that turn, if both share the actor.
    #[cold]
    pub(super) fn push_into_cycle(
        &self,
        mut mailbox: Mailbox<'_, A>,
        call: &mut dyn Posted<A>,
    ) -> Result<(), CallError> {
        let rest = mailbox.rest();
        let caller = call.carried().caller();
        let is_earlier = |turn: &AnyTurn<A>| turn.carried().is_some_and(|carried| carried.caller() == caller);
        let may_join = call.shared() && !rest.queue.iter().any(is_earlier);
        match &mut rest.sharing {
            Some(sharing) if may_join && sharing.has_room() => {
                sharing.join(call.boxed());
                self.look_at_sharers(mailbox);
                Ok(())
            }
            _ => Err(CallError::CallCycle),
        }
    }

    /// Whether a call may run right here, inside the poll of a turn that shares the actor.
    pub(super) fn may_join(&self, depth: u32, sender: &ActorId) -> Join {
        if self.attention() & MAIL != 0 {
            let mut mailbox = self.lock();
            let is_senders = |caller: &Caller| matches!(caller, Caller::Actor(actor) if actor == sender);
            let is_earlier = |turn: &AnyTurn<A>| turn.carried().is_some_and(|carried| is_senders(carried.caller()));
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
    pub(super) fn suspend_sharer(&self, lent: Lent, turn: AnyTurn<A>, scope: Box<Scope>, share: Share) {
        let mut mailbox = self.lock();
        if mailbox.is(Mark::Orphan) {
            match share {
                Share::First => self.bury_lent(mailbox, lent),
                Share::Joined => drop(mailbox),
            }
            return self.tell_lost(turn);
        }
        let sharing = sharing(&mut mailbox, &lent);
        let place = sharing.reserve();
        // It was polled with the actor's own waker.
        let waker = None;
        let refused = self.put_sharer(&mut mailbox, place, Sharer { turn, scope, waker });
        match share {
            Share::First => self.leave_sharing(mailbox, lent),
            Share::Joined => drop(mailbox),
        }
        refuse(refused);
    }

    /// A turn that ran on its caller's thread is over.
    pub(super) fn finish_sharer(&self, lent: Lent, over: Option<AnyTurn<A>>, share: Share) -> Finished {
        let mut mailbox = self.lock();
        if mailbox.is(Mark::Orphan) {
            match share {
                Share::First => self.bury_lent(mailbox, lent),
                Share::Joined => drop(mailbox),
            }
            over.into_iter().for_each(|turn| self.tell_lost(turn));
            return Finished::Lost;
        }
        let is_broken = lent.is_broken();
        let mut over = over;
        if !is_broken && let Some(turn) = over.take() {
            // There may be nobody else; it still takes the one way to save.
            sharing(&mut mailbox, &lent);
            over = self.hold_unsaved(&mut mailbox, turn);
        }
        match share {
            Share::First => self.leave_sharing(mailbox, lent),
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
    pub(super) fn put_sharer(&self, mailbox: &mut Mailbox<'_, A>, place: usize, sharer: Sharer<A>) -> Vec<AnyTurn<A>> {
        let rest = mailbox.rest();
        let sharing = rest.sharing.as_mut().expect("who polls keeps it there");
        let chain = sharer.scope.chain();
        let is_new = sharing.put(place, sharer);
        match chain.filter(|_| is_new) {
            Some(chain) => rest.take_cycles(chain),
            None => Vec::new(),
        }
    }

    /// Keeps a turn that is over if it may have seen what is not saved yet; else gives it back.
    pub(super) fn hold_unsaved(&self, mailbox: &mut Mailbox<'_, A>, turn: AnyTurn<A>) -> Option<AnyTurn<A>> {
        if !saves_each_turn::<A>() {
            return Some(turn);
        }
        let sharing = mailbox.rest().sharing.as_mut().expect("who polls keeps it there");
        match &mut sharing.saving {
            _ if sharing.lent.is_changed() => sharing.unsaved.push(turn),
            Some((_, waiting)) => waiting.push(turn),
            None => return Some(turn),
        }
        None
    }

    /// Whoever polled a turn is done with that: others may go on, or the actor is whole again.
    pub(super) fn leave_sharing(&self, mut mailbox: Mailbox<'_, A>, lent: Lent) {
        let Some(sharing) = mailbox.rest().sharing.as_mut() else {
            unreachable!("an actor that others have a share of keeps track of them");
        };
        sharing.polled = false;
        if sharing.lost.is_some() || lent.is_broken() {
            return self.lose_shared(mailbox, lent);
        }
        if self.attention() & REPORT != 0 {
            self.lower(REPORT);
            self.note(&lent.body::<A>().state);
        }
        if sharing.is_over() {
            mailbox.rest().sharing = None;
            let Ok(body) = lent.give_back() else {
                unreachable!("a turn that is over has given its share back");
            };
            return self.settle(mailbox, body);
        }
        // Under the lock: whoever ends the last turn gets the actor back only if nobody else has a share.
        drop(lent);
        self.save_shared(mailbox);
    }

    /// Nobody may rely on the actor any longer: it starts again from what was saved.
    pub(super) fn lose_shared(&self, mut mailbox: Mailbox<'_, A>, lent: Lent) {
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
        drop_contained(lent);
        self.lose(None);
    }

    /// The turn that was polled was the last of a discarded activation.
    pub(super) fn bury_lent(&self, mut mailbox: Mailbox<'_, A>, lent: Lent) {
        match self.orphan_is_gone(&mut mailbox) {
            Some(next) => self.settle(mailbox, next),
            None => drop(mailbox),
        }
        drop_contained(lent);
    }
}

/// The turns that share an actor, of whom one is just being polled.
fn sharing<'a, A: Handlers>(mailbox: &'a mut Mailbox<'_, A>, lent: &Lent) -> &'a mut Sharing<A> {
    let known = &mut mailbox.rest().sharing;
    known.get_or_insert_with(|| Box::new(Sharing::new(lent.clone(), true)))
}

/// Ends calls that would wait for themselves.
pub(super) fn refuse<A>(calls: Vec<AnyTurn<A>>) {
    for mut call in calls {
        call.as_mut().fail(CallError::CallCycle);
    }
}
