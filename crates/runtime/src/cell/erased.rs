//! Type-erased view of a cell, as the runtime uses it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use elastin_actor::CellHandle;
use elastin_types::{ActivationEpoch, ActorStats, Time};

use crate::scheduler::Runnable;
use crate::{ActivateError, FreezeDone, InboundMessage, StateImage};

/// A cell of any actor type.
pub(crate) trait ErasedCell: CellHandle + Runnable {
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

    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone);

    fn resume(&self, epoch: ActivationEpoch) -> bool;

    fn release(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>>;

    fn discard(&self, epoch: ActivationEpoch) -> Vec<InboundMessage>;

    /// Passivates the actor if it has been unused since the last call.
    fn passivate_if_unused(&self);

    /// Passivates the actor once its mailbox is empty.
    fn deactivate_when_idle(&self);

    /// Measurements since the last report; `None` without an activation. The second part counts towards the server's
    /// totals.
    fn report(&self, listed: bool, period: Period) -> Option<(Option<ActorStats>, Load)>;

    /// Measurements of an activation that was idle in this period; `None` if it has reported already.
    fn report_idle(&self, period: Period) -> Option<ActorStats>;

    /// Tears down the activation at shutdown.
    fn tear_down(&self);

    /// Whether no turn of this actor runs or could run right now. A turn may be suspended on an external event.
    fn is_still(&self) -> bool;

    /// Whether the actor has no work left.
    fn is_at_rest(&self) -> bool;
}

/// The period of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// Sequence number of the snapshot.
    pub(crate) number: u32,
    pub(crate) seconds: f64,
}

/// An actor's contribution to its server's load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) turns: u64,
    /// How long its turns ran.
    pub(crate) busy: Duration,
    /// How many messages are queued.
    pub(crate) backlog: u64,
}
