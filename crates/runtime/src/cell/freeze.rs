//! Freezing, resuming and releasing an activation: what a move is made of.

use elastin_actor::{Handlers, Hook, Instance, encode_state};
use elastin_types::{ActivationEpoch, Time};

use super::{ActorCell, FREEZE};
use crate::cell::flags::Mark;
use crate::cell::state::{CellGuard, Freeze};
use crate::timers::Due;
use crate::{FreezeDone, FreezeError, InboundMessage, StateImage};

impl<A: Handlers> ActorCell<A> {
    /// Asks for a freeze at the next turn boundary.
    pub(super) fn ask_freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        let mut mailbox = self.lock();
        if mailbox.epoch() != Some(epoch) {
            drop(mailbox);
            return done(Err(FreezeError::NotActive));
        }
        if !matches!(mailbox.rest().freeze, Freeze::No) {
            drop(mailbox);
            return done(Err(FreezeError::AlreadyFrozen));
        }
        let me = self.me.clone();
        let expire = move || {
            if let Some(cell) = me.upgrade() {
                cell.freeze_expired(deadline);
            }
        };
        let timer = self.shared.timers.at(deadline, Due::Run(Box::new(expire)));
        mailbox.rest().freeze = Freeze::Asked {
            done,
            timer,
            hooked: false,
        };
        self.raise(FREEZE);
        if mailbox.is(Mark::Orphan) {
            return;
        }
        if let Some(instance) = self.take_at_rest(&mut mailbox) {
            self.settle(mailbox, instance);
        }
    }

    /// Freezes an activation that is at a turn boundary, its hook first.
    pub(super) fn freeze_at_boundary(&self, mut mailbox: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let Freeze::Asked { done, timer, hooked } = std::mem::replace(&mut mailbox.rest().freeze, Freeze::No) else {
            unreachable!("only a freeze that was asked for comes to a boundary");
        };
        if !hooked && A::hooks().contains(&Hook::BeforeMove) {
            let hooked = true;
            mailbox.rest().freeze = Freeze::Asked { done, timer, hooked };
            mailbox.rest().queue.push_front(self.hook_turn(Hook::BeforeMove));
            mailbox.rest().waiting = Some(instance);
            return self.schedule(mailbox, crate::scheduler::WakeMode::Now);
        }
        match encode_state(&instance.state) {
            Ok(state) => {
                mailbox.rest().freeze = Freeze::Frozen(instance);
                drop(mailbox);
                self.shared.timers.cancel(timer);
                done(Ok(StateImage { state, moved: true }));
            }
            Err(error) => {
                self.lower(FREEZE);
                self.settle(mailbox, instance);
                self.shared.timers.cancel(timer);
                done(Err(error.into()));
            }
        }
    }

    /// Gives up a freeze that did not come to a boundary in time.
    fn freeze_expired(&self, deadline: Time) {
        let mut mailbox = self.lock();
        let Some(rest) = mailbox.rest_if_any() else { return };
        // A later freeze has a later deadline and its own timer.
        if !matches!(&rest.freeze, Freeze::Asked { timer, .. } if timer.at == deadline) {
            return;
        }
        if let Freeze::Asked { done, .. } = std::mem::replace(&mut rest.freeze, Freeze::No) {
            self.lower(FREEZE);
            self.poll_interleaved(mailbox);
            done(Err(FreezeError::ActiveSet));
        }
    }

    /// Lets a frozen activation go on, or gives up a freeze that is under way.
    pub(super) fn unfreeze(&self, epoch: ActivationEpoch) -> bool {
        let mut mailbox = self.lock();
        if mailbox.epoch() != Some(epoch) {
            return false;
        }
        match std::mem::replace(&mut mailbox.rest().freeze, Freeze::No) {
            Freeze::No => false,
            Freeze::Frozen(instance) => {
                self.lower(FREEZE);
                self.settle(mailbox, instance);
                true
            }
            Freeze::Asked { done, timer, .. } => {
                self.lower(FREEZE);
                self.poll_interleaved(mailbox);
                self.shared.timers.cancel(timer);
                done(Err(FreezeError::ActiveSet));
                true
            }
        }
    }

    /// Ends a frozen activation whose state went elsewhere; gives its mail.
    pub(super) fn release_frozen(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>> {
        let mut mailbox = self.lock();
        if mailbox.epoch() != Some(epoch) || !matches!(mailbox.rest().freeze, Freeze::Frozen(_)) {
            return None;
        }
        self.close(&mut mailbox);
        let rest = mailbox.take_rest();
        drop(mailbox);
        let queue = self.clean_up(rest);
        Some(self.to_mail(queue))
    }
}
