//! The runtime as its owner sees it.

use std::sync::Arc;
use std::time::Duration;

use elastin_actor::{Client, Handlers, Host};
use elastin_types::{ActivationEpoch, ActorId, NodeId, Schema, Time};

use crate::{
    ActivateError, BuildError, FreezeError, Interest, Mail, NodeSnapshot, Outside, Settings, StateImage, Stats,
    Undeliverable,
};

/// Called once with how a freeze ended.
pub type FreezeDone = Box<dyn FnOnce(Result<StateImage, FreezeError>) + Send>;

/// One node's execution of actors. Clones are the same runtime; it ends with [`shutdown`](Runtime::shutdown).
#[derive(Clone)]
pub struct Runtime {}

/// Sets up a [`Runtime`].
pub struct Builder {
    settings: Settings,
}

impl Builder {
    /// Adds an actor type.
    pub fn register<A: Handlers>(self) -> Self {
        self
    }

    /// Says which node this process is; else it is node 0.
    pub fn node(mut self, node: NodeId) -> Self {
        self.settings.node = node;
        self
    }

    /// Sets how many threads run turns; else as many as there are cores.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Limits the CPU time of the whole process, in cores.
    pub fn cpu_share(mut self, cores: Option<f64>) -> Self {
        self.settings.cpu_share = cores;
        self
    }

    /// Sets everything that is not set by the other methods.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Says what is beyond this node; else it is alone.
    pub fn outside(self, _outside: Arc<dyn Outside>) -> Self {
        self
    }

    /// The tokio runtime that handlers use; else the current one, or one of its own.
    pub fn tokio(self, _handle: tokio::runtime::Handle) -> Self {
        self
    }

    /// Starts the runtime.
    pub fn build(self) -> Result<Runtime, BuildError> {
        todo!()
    }
}

impl Runtime {
    /// Sets up a runtime.
    pub fn builder() -> Builder {
        todo!()
    }

    /// A way to call actors from outside any turn.
    pub fn client(&self) -> Client {
        todo!()
    }

    /// What references are bound to.
    pub fn host(&self) -> Arc<dyn Host> {
        todo!()
    }

    /// The node that this process is.
    pub fn node(&self) -> NodeId {
        todo!()
    }

    /// The time on this process's clock, which all deadlines are on.
    pub fn now(&self) -> Time {
        todo!()
    }

    /// The registered actor types.
    pub fn schema(&self) -> &Schema {
        todo!()
    }

    /// Puts mail from elsewhere into its target's mailbox, in the order of the calls. The outcome of a call leaves through
    /// the mail's slot, else through [`Outside::reply`]. A full mailbox, an unknown function or undecodable arguments are
    /// outcomes too.
    pub fn deliver(&self, _mail: impl Into<Mail>, _epoch: ActivationEpoch) -> Result<(), Undeliverable> {
        todo!()
    }

    /// Activates an actor from an image, or from its default state, with mail that is older than any that comes
    /// after. On failure the mail comes back with the reason.
    pub fn activate(
        &self,
        _actor: &ActorId,
        _epoch: ActivationEpoch,
        _image: Option<StateImage>,
        _mail: Vec<Mail>,
    ) -> Result<(), (ActivateError, Vec<Mail>)> {
        todo!()
    }

    /// The epoch with which an actor is active here.
    pub fn active(&self, _actor: &ActorId) -> Option<ActivationEpoch> {
        todo!()
    }

    /// All activations.
    pub fn activations(&self) -> Vec<(ActorId, ActivationEpoch)> {
        todo!()
    }

    /// Freezes an activation at its next turn boundary and gives its state to `done`. It starts no further turn but takes
    /// mail, until it is resumed or released. If the boundary is not reached before the deadline, the activation goes on.
    pub fn freeze(&self, _actor: &ActorId, _epoch: ActivationEpoch, _deadline: Time, _done: FreezeDone) {
        todo!()
    }

    /// Lets a frozen activation go on; gives up a freeze that is under way. Says whether there was one.
    pub fn resume(&self, _actor: &ActorId, _epoch: ActivationEpoch) -> bool {
        todo!()
    }

    /// Ends a frozen activation, whose state went elsewhere, and gives its mail, oldest first. From this moment on its mail
    /// goes to [`Outside::send`]. `None` if it is not frozen here with that epoch.
    pub fn release(&self, _actor: &ActorId, _epoch: ActivationEpoch) -> Option<Vec<Mail>> {
        todo!()
    }

    /// Drops an activation that has no right to be any longer, without saving and without hooks. A running turn ends
    /// unseen: its caller gets `Unknown(NodeLost)`. Gives the mail that had not begun, oldest first.
    pub fn discard(&self, _actor: &ActorId, _epoch: ActivationEpoch) -> Vec<Mail> {
        todo!()
    }

    /// While fenced, no turn starts and no reply leaves; what has to wait leaves when the fence is lifted.
    pub fn fence(&self, _fenced: bool) {
        todo!()
    }

    /// Sets how many threads run turns.
    pub fn set_workers(&self, _workers: usize) -> Result<(), BuildError> {
        todo!()
    }

    /// Sets how much CPU time the process may use, in cores.
    pub fn set_cpu_share(&self, _cores: Option<f64>) {
        todo!()
    }

    /// What was done since the last snapshot, and starts a new period.
    pub fn snapshot(&self, _interest: &Interest) -> NodeSnapshot {
        todo!()
    }

    /// Measures of the work stage.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Ends the runtime: takes no new calls, lets mailboxes run empty for at most so long, runs hooks, and stops the
    /// threads. Says whether everything was finished in time.
    pub async fn shutdown(&self, _wait_max: Duration) -> bool {
        todo!()
    }
}
