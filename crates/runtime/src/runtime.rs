//! The public handle of a runtime, and its builder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use elastin_actor::{Client, Handlers, Host, schema_of};
use elastin_clock::Clock;
use elastin_types::{ActivationEpoch, ActorId, ActorSchema, NodeId, Schema, Time};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::active_set::ActiveSet;
use crate::inner::RuntimeInner;
use crate::profile::snapshot::Periods;
use crate::registry::{ErasedCells, Registry, cells_of};
use crate::scheduler::Scheduler;
use crate::scheduler::caller_resume::ResumeWatchdog;
use crate::scheduler::inline_task::InlineTask;
use crate::timers::{Due, Timers};
use crate::{
    ActivateError, BuildError, FreezeError, InboundMessage, Interest, LocalOnly, NodeSnapshot, Remote, Settings,
    StateImage, Stats, TypeTotals, Undeliverable,
};

use crate::tuning::{SHUTDOWN_POLL, SWEEP_EVERY};

/// Called once with the result of a freeze.
pub type FreezeDone = Box<dyn FnOnce(Result<StateImage, FreezeError>) + Send>;

/// One node's execution of actors. Clones refer to the same runtime. It ends with [`shutdown`](Runtime::shutdown), or
/// when the last clone is dropped.
#[derive(Clone)]
pub struct Runtime {
    owner: Arc<Owner>,
}

/// Ends the runtime when the last clone is dropped.
struct Owner {
    inner: Arc<RuntimeInner>,
    handle: Handle,
    periods: Mutex<Periods>,
    threads: Mutex<Threads>,
}

/// Threads to stop at the end.
struct Threads {
    timers: Option<JoinHandle<()>>,
    /// The tokio runtime, if this runtime created it.
    tokio: Option<tokio::runtime::Runtime>,
}

/// Builder of a [`Runtime`].
pub struct Builder {
    settings: Settings,
    types: Vec<(ActorSchema, Box<dyn ErasedCells>)>,
    remote: Option<Arc<dyn Remote>>,
    tokio: Option<Handle>,
    clock: Option<Clock>,
}

impl Builder {
    /// Registers an actor type.
    pub fn register<A: Handlers>(mut self) -> Self {
        self.types.push((schema_of::<A>(), cells_of::<A>()));
        self
    }

    /// Sets the node id of this process; 0 by default.
    pub fn node(mut self, node: NodeId) -> Self {
        self.settings.node = node;
        self
    }

    /// Sets how many threads run turns; one per core by default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Limits the CPU time of the whole process, in cores.
    pub fn cpu_share(mut self, cores: Option<f64>) -> Self {
        self.settings.cpu_share = cores;
        self
    }

    /// Replaces all settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the connection to the rest of the cluster; [`LocalOnly`] by default.
    pub fn remote(mut self, outside: Arc<dyn Remote>) -> Self {
        self.remote = Some(outside);
        self
    }

    /// Sets the tokio runtime for handlers. The default is the current one, or a new one.
    pub fn tokio(mut self, handle: Handle) -> Self {
        self.tokio = Some(handle);
        self
    }

    /// Sets the clock of the runtime; its own by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts the runtime.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let mut schema = Schema::default();
        let mut types = BTreeMap::new();
        for (actor, cells) in self.types {
            types.insert(actor.kind(), cells);
            schema.add(actor)?;
        }
        let (handle, tokio) = match self.tokio.or_else(|| Handle::try_current().ok()) {
            Some(handle) => (handle, None),
            None => {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                let own = builder
                    .worker_threads(1)
                    .enable_all()
                    .thread_name("elastin-io")
                    .build()?;
                (own.handle().clone(), Some(own))
            }
        };
        let clock = self.clock.unwrap_or_else(Clock::start);
        let timers = Timers::new(clock.clone());
        let scheduler = Scheduler::new(clock.clone(), self.settings.cpu_share);
        let remote = self.remote.unwrap_or_else(|| Arc::new(LocalOnly::default()));
        let periods = Mutex::new(Periods::begin(clock.now(), &*remote));
        let inner = Arc::new_cyclic(|me| RuntimeInner {
            me: me.clone(),
            schema,
            clock: clock.clone(),
            registry: Registry::new(types),
            active: ActiveSet::default(),
            scheduler: scheduler.clone(),
            watchdog: ResumeWatchdog::new(clock, timers.clone()),
            timers: timers.clone(),
            remote,
            held: Mutex::default(),
            stopped: AtomicBool::new(false),
            next_call: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            overloads: AtomicU64::new(0),
            activations: AtomicU64::new(0),
            settings: self.settings,
        });
        let threads = Threads {
            timers: Some(timers.start()?),
            tokio,
        };
        let owner = Owner {
            handle,
            periods,
            threads: Mutex::new(threads),
            inner: inner.clone(),
        };
        scheduler.set_workers(inner.settings.workers, &owner.handle)?;
        sweep_later(&inner);
        Ok(Runtime { owner: Arc::new(owner) })
    }
}

/// Passivates idle actors and removes empty cells, periodically.
fn sweep_later(inner: &Arc<RuntimeInner>) {
    let every = inner.settings.idle_max.unwrap_or(SWEEP_EVERY);
    let weak = inner.me.clone();
    let sweep = move || {
        let Some(inner) = weak.upgrade() else { return };
        if inner.settings.idle_max.is_some() {
            inner.registry.each(|cell| cell.passivate_if_unused());
        }
        inner.registry.sweep();
        inner.active.sweep();
        sweep_later(&inner);
    };
    inner.timers.at(inner.clock.now() + every, Due::Run(Box::new(sweep)));
}

impl Runtime {
    /// Creates a builder.
    pub fn builder() -> Builder {
        Builder {
            settings: Settings::default(),
            types: Vec::new(),
            remote: None,
            tokio: None,
            clock: None,
        }
    }

    fn inner(&self) -> &Arc<RuntimeInner> {
        &self.owner.inner
    }

    /// A client that calls actors from outside any turn.
    pub fn client(&self) -> Client {
        Client::new(self.host())
    }

    /// The host that references are bound to.
    pub fn host(&self) -> Arc<dyn Host> {
        self.inner().clone()
    }

    /// The node id of this process.
    pub fn node(&self) -> NodeId {
        self.inner().settings.node
    }

    /// The current time on the runtime's clock, on which all deadlines are based.
    pub fn now(&self) -> Time {
        self.inner().clock.now()
    }

    /// The runtime's clock.
    pub fn clock(&self) -> &Clock {
        &self.inner().clock
    }

    /// Whether no turn runs, and none could start or resume without an external event or the passing of time. The cost
    /// is proportional to the number of actors.
    pub fn is_still(&self) -> bool {
        let mut is_still = true;
        self.inner().registry.each(|cell| is_still &= cell.is_still());
        is_still
    }

    /// The registered actor types.
    pub fn schema(&self) -> &Schema {
        &self.inner().schema
    }

    /// Enqueues an inbound message into its target's mailbox, in call order. The outcome of a call is sent to the
    /// message's reply cell, else through [`Remote::reply`]. A full mailbox, an unknown function or undecodable
    /// arguments are outcomes too.
    pub fn deliver(&self, inbound: impl Into<InboundMessage>, epoch: ActivationEpoch) -> Result<(), Undeliverable> {
        let inbound = inbound.into();
        match self.inner().registry.get(&inbound.message.target) {
            Some(cell) => cell.deliver(inbound, epoch).map_err(Undeliverable),
            None => Err(Undeliverable(Box::new(inbound))),
        }
    }

    /// Lets this thread call [`deliver`](Runtime::deliver) for one actor or several, and returns the first cell that
    /// became runnable, to be run on this thread. Handlers then run here, so the thread must be inside a tokio runtime.
    pub fn deliver_inline(&self, deliver: impl FnOnce()) -> Option<InlineTask> {
        InlineTask::deliver_inline(&self.inner().scheduler, deliver)
    }

    /// Activates an actor from an image or its default state, with messages that precede all later ones. On failure the
    /// messages are returned with the reason.
    pub fn activate(
        &self,
        actor: &ActorId,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        messages: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        match self.inner().cell(actor) {
            Some(cell) => cell.activate(epoch, image, messages),
            None => Err((ActivateError::UnknownType(actor.kind.number()), messages)),
        }
    }

    /// The epoch with which an actor is active here.
    pub fn active(&self, actor: &ActorId) -> Option<ActivationEpoch> {
        self.inner().registry.get(actor)?.epoch()
    }

    /// All activations.
    pub fn activations(&self) -> Vec<(ActorId, ActivationEpoch)> {
        let mut activations = Vec::new();
        self.inner().registry.each(|cell| {
            activations.extend(cell.epoch().map(|epoch| (cell.id(), epoch)));
        });
        activations
    }

    /// Freezes an activation at its next turn boundary and passes its state to `done`. Until it is resumed or released
    /// it accepts messages but starts no turn. If no boundary is reached before the deadline, it continues.
    pub fn freeze(&self, actor: &ActorId, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        match self.inner().registry.get(actor) {
            Some(cell) => cell.freeze(epoch, deadline, done),
            None => done(Err(FreezeError::NotActive)),
        }
    }

    /// Resumes a frozen activation, or cancels a freeze in progress. Returns whether there was one.
    pub fn resume(&self, actor: &ActorId, epoch: ActivationEpoch) -> bool {
        self.inner().registry.get(actor).is_some_and(|cell| cell.resume(epoch))
    }

    /// Ends a frozen activation whose state has moved, and returns its messages, oldest first. From now on its messages
    /// go to [`Remote::send`]. `None` if it is not frozen here with that epoch.
    pub fn release(&self, actor: &ActorId, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>> {
        self.inner().registry.get(actor)?.release(epoch)
    }

    /// Drops a superseded activation without saving it and without hooks. A running turn ends without effect; the
    /// caller of a suspended one gets `Unknown(NodeLost)`. Returns the messages that had not begun, oldest first.
    pub fn discard(&self, actor: &ActorId, epoch: ActivationEpoch) -> Vec<InboundMessage> {
        match self.inner().registry.get(actor) {
            Some(cell) => cell.discard(epoch),
            None => Vec::new(),
        }
    }

    /// Sets the expiry of the node's lease, on the runtime's clock; afterwards the node is fenced. The clock is checked
    /// before every turn, so that none starts too late in a process that was suspended.
    pub fn may_act_until(&self, until: Time) {
        self.inner().may_act_until(until);
    }

    /// Sets or lifts the fence. While fenced, no turn starts and replies are deferred until the fence is lifted.
    pub fn fence(&self, fenced: bool) {
        self.inner().fence(fenced);
    }

    /// Sets how many threads run turns.
    pub fn set_workers(&self, workers: usize) -> Result<(), BuildError> {
        Ok(self.inner().scheduler.set_workers(workers, &self.owner.handle)?)
    }

    /// Work since the last snapshot; starts a new period. The cost is proportional to the number of active actors, or
    /// of all actors if idle ones are of interest.
    pub fn snapshot(&self, interest: &Interest) -> NodeSnapshot {
        self.owner.periods.lock().end(self.inner(), interest)
    }

    /// Totals per actor type up to the last snapshot.
    pub fn totals(&self) -> Vec<TypeTotals> {
        self.owner.periods.lock().totals(&self.inner().schema)
    }

    /// Scheduler metrics.
    pub fn stats(&self) -> Stats {
        let inner = self.inner();
        Stats {
            workers: inner.scheduler.workers(),
            activations: inner.activations.load(Ordering::Relaxed),
            turns: inner.turns.load(Ordering::Relaxed),
            queued: inner.scheduler.queued(),
            panics: inner.panics.load(Ordering::Relaxed),
            overloads: inner.overloads.load(Ordering::Relaxed),
            throttled: inner.scheduler.pauses.load(Ordering::Relaxed),
        }
    }

    /// Shuts down the runtime: accepts no new calls, drains mailboxes for at most `wait_max`, runs hooks, and stops the
    /// threads. Returns whether everything finished in time.
    pub async fn shutdown(&self, wait_max: Duration) -> bool {
        let inner = self.inner().clone();
        inner.stopped.store(true, Ordering::SeqCst);
        let end = inner.clock.now() + wait_max;
        inner.registry.each(|cell| cell.deactivate_when_idle());
        loop {
            let mut at_rest = true;
            inner.registry.each(|cell| at_rest &= cell.is_at_rest());
            if at_rest || inner.clock.now() >= end {
                let owner = self.owner.clone();
                let stop = tokio::task::spawn_blocking(move || owner.stop());
                if stop.await.is_err() {
                    tracing::error!("stopping the runtime panicked");
                }
                return at_rest;
            }
            tokio::time::sleep(SHUTDOWN_POLL).await;
        }
    }
}

impl Owner {
    /// Stops everything; idempotent.
    fn stop(&self) {
        let inner = &self.inner;
        inner.stopped.store(true, Ordering::SeqCst);
        inner.scheduler.stop();
        inner.timers.stop();
        let mut threads = self.threads.lock();
        let me = std::thread::current().id();
        if let Some(timers) = threads.timers.take().filter(|timers| timers.thread().id() != me)
            && timers.join().is_err()
        {
            tracing::error!("the timer thread panicked");
        }
        // Instances refer to their cells and to each other, so these cycles must be broken explicitly.
        for cell in inner.registry.drain() {
            cell.tear_down();
        }
        if let Some(tokio) = threads.tokio.take() {
            tokio.shutdown_background();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}
