//! The runtime as its owner sees it.

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
use crate::call_numbers::CallNumbers;
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

/// How often a shutdown looks whether everything is done.
const SHUTDOWN_POLL: Duration = Duration::from_millis(2);

/// How often empty cells are forgotten where nothing is passivated.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Called once with how a freeze ended.
pub type FreezeDone = Box<dyn FnOnce(Result<StateImage, FreezeError>) + Send>;

/// One node's execution of actors. Clones are the same runtime; it ends with [`shutdown`](Runtime::shutdown), or when the
/// last clone is dropped.
#[derive(Clone)]
pub struct Runtime {
    owner: Arc<Owner>,
}

/// Ends the runtime when the last clone is dropped.
struct Owner {
    shared: Arc<RuntimeInner>,
    handle: Handle,
    periods: Mutex<Periods>,
    threads: Mutex<Threads>,
}

/// What has to be ended.
struct Threads {
    timers: Option<JoinHandle<()>>,
    /// The tokio runtime, if it is our own.
    tokio: Option<tokio::runtime::Runtime>,
}

/// Sets up a [`Runtime`].
pub struct Builder {
    settings: Settings,
    types: Vec<(ActorSchema, Box<dyn ErasedCells>)>,
    outside: Option<Arc<dyn Remote>>,
    tokio: Option<Handle>,
    clock: Option<Clock>,
}

impl Builder {
    /// Adds an actor type.
    pub fn register<A: Handlers>(mut self) -> Self {
        self.types.push((schema_of::<A>(), cells_of::<A>()));
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

    /// Sets everything at once.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Says what is beyond this node; else it is alone.
    pub fn outside(mut self, outside: Arc<dyn Remote>) -> Self {
        self.outside = Some(outside);
        self
    }

    /// The tokio runtime that handlers use; else the current one, or one of its own.
    pub fn tokio(mut self, handle: Handle) -> Self {
        self.tokio = Some(handle);
        self
    }

    /// The clock that all its times are on; else one of its own.
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
        let outside = self.outside.unwrap_or_else(|| Arc::new(LocalOnly::default()));
        let periods = Mutex::new(Periods::begin(clock.now(), &*outside));
        let shared = Arc::new_cyclic(|me| RuntimeInner {
            me: me.clone(),
            schema,
            clock: clock.clone(),
            registry: Registry::new(types),
            busy: ActiveSet::new(),
            scheduler: scheduler.clone(),
            watch: ResumeWatchdog::new(clock, timers.clone()),
            timers: timers.clone(),
            outside,
            held: Mutex::default(),
            stopped: AtomicBool::new(false),
            calls: CallNumbers::new(),
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
            shared: shared.clone(),
        };
        scheduler.set_workers(shared.settings.workers, &owner.handle)?;
        sweep_later(&shared);
        Ok(Runtime { owner: Arc::new(owner) })
    }
}

/// Passivates idle actors and forgets empty cells, again and again.
fn sweep_later(shared: &Arc<RuntimeInner>) {
    let every = shared.settings.idle_max.unwrap_or(SWEEP_EVERY);
    let weak = shared.me.clone();
    let sweep = move || {
        let Some(shared) = weak.upgrade() else { return };
        if shared.settings.idle_max.is_some() {
            shared.registry.each(|cell| cell.passivate_if_unused());
        }
        shared.registry.sweep();
        shared.busy.sweep();
        sweep_later(&shared);
    };
    shared.timers.at(shared.clock.now() + every, Due::Run(Box::new(sweep)));
}

impl Runtime {
    /// Sets up a runtime.
    pub fn builder() -> Builder {
        Builder {
            settings: Settings::default(),
            types: Vec::new(),
            outside: None,
            tokio: None,
            clock: None,
        }
    }

    fn shared(&self) -> &Arc<RuntimeInner> {
        &self.owner.shared
    }

    /// A way to call actors from outside any turn.
    pub fn client(&self) -> Client {
        Client::new(self.host())
    }

    /// What references are bound to.
    pub fn host(&self) -> Arc<dyn Host> {
        self.shared().clone()
    }

    /// The node that this process is.
    pub fn node(&self) -> NodeId {
        self.shared().settings.node
    }

    /// The time on this process's clock, which all deadlines are on.
    pub fn now(&self) -> Time {
        self.shared().clock.now()
    }

    /// This process's clock.
    pub fn clock(&self) -> &Clock {
        &self.shared().clock
    }

    /// Whether no turn runs, and none could begin or go on, unless something comes from outside or time passes. It costs as
    /// much as there are actors.
    pub fn is_still(&self) -> bool {
        let mut is_still = true;
        self.shared().registry.each(|cell| is_still &= cell.is_still());
        is_still
    }

    /// The registered actor types.
    pub fn schema(&self) -> &Schema {
        &self.shared().schema
    }

    /// Puts mail from elsewhere into its target's mailbox, in the order of the calls. The outcome of a call leaves through
    /// the mail's slot, else through [`Remote::reply`]. A full mailbox, an unknown function or undecodable arguments are
    /// outcomes too.
    pub fn deliver(&self, mail: impl Into<InboundMessage>, epoch: ActivationEpoch) -> Result<(), Undeliverable> {
        let mail = mail.into();
        match self.shared().registry.get(&mail.message.target) {
            Some(cell) => cell.deliver(mail, epoch).map_err(Undeliverable),
            None => Err(Undeliverable(Box::new(mail))),
        }
    }

    /// Lets this thread bring mail with [`deliver`](Runtime::deliver), for one actor or many, and gives back what it may run
    /// itself of what became runnable. Handlers then run on this thread, so it must be inside a tokio runtime.
    pub fn deliver_inline(&self, deliver: impl FnOnce()) -> Option<InlineTask> {
        InlineTask::deliver_inline(&self.shared().scheduler, deliver)
    }

    /// Activates an actor from an image, or from its default state, with mail that is older than any that comes
    /// after. On failure the mail comes back with the reason.
    pub fn activate(
        &self,
        actor: &ActorId,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        mail: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        match self.shared().cell(actor) {
            Some(cell) => cell.activate(epoch, image, mail),
            None => Err((ActivateError::UnknownType(actor.kind.number()), mail)),
        }
    }

    /// The epoch with which an actor is active here.
    pub fn active(&self, actor: &ActorId) -> Option<ActivationEpoch> {
        self.shared().registry.get(actor)?.epoch()
    }

    /// All activations.
    pub fn activations(&self) -> Vec<(ActorId, ActivationEpoch)> {
        let mut activations = Vec::new();
        self.shared().registry.each(|cell| {
            activations.extend(cell.epoch().map(|epoch| (cell.id(), epoch)));
        });
        activations
    }

    /// Freezes an activation at its next turn boundary and gives its state to `done`. It starts no further turn but takes
    /// mail, until it is resumed or released. If the boundary is not reached before the deadline, the activation goes on.
    pub fn freeze(&self, actor: &ActorId, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        match self.shared().registry.get(actor) {
            Some(cell) => cell.freeze(epoch, deadline, done),
            None => done(Err(FreezeError::NotActive)),
        }
    }

    /// Lets a frozen activation go on; gives up a freeze that is under way. Says whether there was one.
    pub fn resume(&self, actor: &ActorId, epoch: ActivationEpoch) -> bool {
        self.shared().registry.get(actor).is_some_and(|cell| cell.resume(epoch))
    }

    /// Ends a frozen activation, whose state went elsewhere, and gives its mail, oldest first. From this moment on its mail
    /// goes to [`Remote::send`]. `None` if it is not frozen here with that epoch.
    pub fn release(&self, actor: &ActorId, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>> {
        self.shared().registry.get(actor)?.release(epoch)
    }

    /// Drops an activation that has no right to be any longer, without saving and without hooks. A running turn ends
    /// unseen; the caller of one that waits gets `Unknown(NodeLost)`. Gives the mail that had not begun, oldest first.
    pub fn discard(&self, actor: &ActorId, epoch: ActivationEpoch) -> Vec<InboundMessage> {
        match self.shared().registry.get(actor) {
            Some(cell) => cell.discard(epoch),
            None => Vec::new(),
        }
    }

    /// The node has a lease, which is good until this time on the runtime's clock: from then on it is fenced. Whoever is about to
    /// begin a turn looks at the clock, so that none begins too late in a process that was stopped.
    pub fn may_act_until(&self, until: Time) {
        self.shared().may_act_until(until);
    }

    /// While fenced, no turn starts and no reply leaves; what has to wait leaves when the fence is lifted.
    pub fn fence(&self, fenced: bool) {
        self.shared().fence(fenced);
    }

    /// Sets how many threads run turns.
    pub fn set_workers(&self, workers: usize) -> Result<(), BuildError> {
        Ok(self.shared().scheduler.set_workers(workers, &self.owner.handle)?)
    }

    /// What was done since the last snapshot, and starts a new period. It costs as much as there are actors that did
    /// something, and, if the interest is in idle ones too, as there are actors.
    pub fn snapshot(&self, interest: &Interest) -> NodeSnapshot {
        self.owner.periods.lock().end(self.shared(), interest)
    }

    /// What actors of each type did up to the last snapshot.
    pub fn totals(&self) -> Vec<TypeTotals> {
        self.owner.periods.lock().totals(&self.shared().schema)
    }

    /// Measures of the work stage.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        Stats {
            workers: shared.scheduler.workers(),
            activations: shared.activations.load(Ordering::Relaxed),
            turns: shared.turns.load(Ordering::Relaxed),
            queued: shared.scheduler.queued(),
            panics: shared.panics.load(Ordering::Relaxed),
            overloads: shared.overloads.load(Ordering::Relaxed),
            throttled: shared.scheduler.pauses.load(Ordering::Relaxed),
        }
    }

    /// Ends the runtime: takes no new calls, lets mailboxes run empty for at most so long, runs hooks, and stops the
    /// threads. Says whether everything was finished in time.
    pub async fn shutdown(&self, wait_max: Duration) -> bool {
        let shared = self.shared().clone();
        shared.stopped.store(true, Ordering::SeqCst);
        let end = shared.clock.now() + wait_max;
        shared.registry.each(|cell| cell.deactivate_when_idle());
        loop {
            let mut at_rest = true;
            shared.registry.each(|cell| at_rest &= cell.is_at_rest());
            if at_rest || shared.clock.now() >= end {
                let owner = self.owner.clone();
                let stop = tokio::task::spawn_blocking(move || owner.stop());
                if stop.await.is_err() {
                    tracing::error!("a runtime could not be stopped cleanly");
                }
                return at_rest;
            }
            tokio::time::sleep(SHUTDOWN_POLL).await;
        }
    }
}

impl Owner {
    /// Stops everything; nothing happens the second time.
    fn stop(&self) {
        let shared = &self.shared;
        shared.stopped.store(true, Ordering::SeqCst);
        shared.scheduler.stop();
        shared.timers.stop();
        let mut threads = self.threads.lock();
        let me = std::thread::current().id();
        if let Some(timers) = threads.timers.take().filter(|timers| timers.thread().id() != me)
            && timers.join().is_err()
        {
            tracing::error!("the timer thread panicked");
        }
        // Bodies refer to their cells and to each other: taken apart by hand, or they would keep themselves alive.
        for cell in shared.registry.drain() {
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
