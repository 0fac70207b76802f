//! Type-erased view of a cell, as the runtime uses it.

use std::any::Any;
use std::sync::Arc;

use elastin_actor::{CellHandle, Handlers, Invoke};
use elastin_types::{ActivationEpoch, CallError, NotDelivered};

use super::ActorCell;
use crate::cell::freeze::Movable;
use crate::cell::lifecycle::{END, FREEZE, Flag, Lifecycle, MESSAGES};
use crate::cell::report::Reports;
use crate::cell::state::CellGuard;
use crate::scheduler::Runnable;
use crate::{ActivateError, InboundMessage, StateImage};

/// A cell of any actor type.
pub(crate) trait ErasedCell: CellHandle + Runnable + Movable + Reports {
    /// A boxed `Arc<dyn Invoke<A>>`, for references of the actor's own type.
    fn target(self: Arc<Self>) -> Box<dyn Any>;

    /// Whether there is neither an activation nor a message, so that the cell can be removed.
    fn is_empty(&self) -> bool;

    /// The epoch of the activation, if there is one.
    fn epoch(&self) -> Option<ActivationEpoch>;

    fn deliver(&self, inbound: InboundMessage, epoch: ActivationEpoch) -> Result<(), Box<InboundMessage>>;

    fn activate(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        messages: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)>;

    /// Passivates the actor if it has been unused since the last call.
    fn passivate_if_unused(&self);

    /// Passivates the actor once its mailbox is empty.
    fn deactivate_when_idle(&self);

    /// Tears down the activation at shutdown.
    fn tear_down(&self) {
        let unfinished = self.epoch().map(|epoch| self.discard(epoch));
        for reply in unfinished.into_iter().flatten().filter_map(|inbound| inbound.reply) {
            reply.complete(Err(CallError::NotDelivered(NotDelivered::ShuttingDown)));
        }
    }

    /// Whether no turn of this actor runs or could run right now. A turn may be suspended on an external event.
    fn is_still(&self) -> bool;

    /// Whether the actor has no work left.
    fn is_at_rest(&self) -> bool;
}

impl<A: Handlers> ErasedCell for ActorCell<A> {
    fn target(self: Arc<Self>) -> Box<dyn Any> {
        let target: Arc<dyn Invoke<A>> = self;
        Box::new(target)
    }

    fn is_empty(&self) -> bool {
        let guard = self.lock();
        guard.lifecycle() == Lifecycle::Inactive && !guard.is_orphaned() && !guard.is(Flag::Scheduled)
    }

    fn epoch(&self) -> Option<ActivationEpoch> {
        self.lock().epoch()
    }

    fn deliver(&self, inbound: InboundMessage, epoch: ActivationEpoch) -> Result<(), Box<InboundMessage>> {
        self.deliver_message(inbound, epoch)
    }

    fn activate(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        messages: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        self.activate_from(epoch, image, messages)
    }

    fn passivate_if_unused(&self) {
        let Some(mut instance) = self.idle.take() else { return };
        instance.forget_waker();
        if !std::mem::take(&mut instance.used_since_sweep) {
            self.deactivate();
            self.lock().shrink();
        }
        self.finish(instance);
    }

    fn deactivate_when_idle(&self) {
        self.deactivate();
        if let Some(instance) = self.idle.take() {
            self.finish(instance);
        }
    }

    fn is_still(&self) -> bool {
        let guard = self.lock();
        let lifecycle = guard.lifecycle();
        if guard.is(Flag::Scheduled) || lifecycle == Lifecycle::Rerouting || guard.is_orphaned() {
            return false;
        }
        if lifecycle == Lifecycle::Inactive || guard.waits_externally() {
            return true;
        }
        self.is_idle(guard)
    }

    fn is_at_rest(&self) -> bool {
        let guard = self.lock();
        if !guard.lifecycle().has_activation() {
            return guard.lifecycle() == Lifecycle::Inactive;
        }
        if guard.queued() > 0 || self.idle.attention() & (MESSAGES | END | FREEZE) != 0 {
            return false;
        }
        self.is_idle(guard)
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Whether the instance is in the idle slot, which means that no thread runs a turn.
    fn is_idle(&self, guard: CellGuard<'_, A>) -> bool {
        let instance = self.take_idle(&guard);
        drop(guard);
        instance.map(|instance| self.finish(instance)).is_some()
    }
}
