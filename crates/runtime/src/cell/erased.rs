//! A cell whatever its actor type, as the runtime sees it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use elastin_actor::CellHandle;
use elastin_types::{ActivationEpoch, ActorStats, Time};

use crate::scheduler::Runnable;
use crate::{ActivateError, FreezeDone, InboundMessage, StateImage};

/// A cell whatever its actor type.
pub(crate) trait ErasedCell: CellHandle + Runnable {
    /// An `Arc<dyn Invoke<A>>` in a box, for references of the actor's own type.
    fn target(self: Arc<Self>) -> Box<dyn Any>;

    /// Whether there is no activation and no mail, so that the cell can be forgotten.
    fn is_empty(&self) -> bool;

    /// The epoch of the activation, if there is one.
    fn epoch(&self) -> Option<ActivationEpoch>;

    fn deliver(&self, mail: InboundMessage, epoch: ActivationEpoch) -> Result<(), Box<InboundMessage>>;

    fn activate(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        mail: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)>;

    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone);

    fn resume(&self, epoch: ActivationEpoch) -> bool;

    fn release(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>>;

    fn discard(&self, epoch: ActivationEpoch) -> Vec<InboundMessage>;

    /// Passivates the actor if it has done nothing since the last time it was asked.
    fn passivate_if_unused(&self);

    /// Passivates the actor as soon as it has no mail.
    fn deactivate_when_idle(&self);

    /// What was measured since the last time; `None` if there is no activation. The second part is what counts for the
    /// server as a whole.
    fn report(&self, listed: bool, period: Period) -> Option<(Option<ActorStats>, Load)>;

    /// What is known of an activation that did nothing in this period; `None` if it did something, and has reported.
    fn report_idle(&self, period: Period) -> Option<ActorStats>;

    /// Ends everything, because the runtime ends.
    fn tear_down(&self);

    /// Whether no turn of this actor runs or could run at this moment. One that waits for something outside may be under way.
    fn is_still(&self) -> bool;

    /// Whether nothing is to be done for this actor.
    fn is_at_rest(&self) -> bool;
}

/// The period that a report is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// Counts the snapshots of a runtime.
    pub(crate) number: u32,
    pub(crate) seconds: f64,
}

/// What an actor adds to its server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) turns: u64,
    /// The time its turns ran.
    pub(crate) busy: Duration,
    /// How many messages wait.
    pub(crate) backlog: u64,
}
