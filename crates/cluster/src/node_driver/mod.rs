//! A node's driver: carries events between the runtime, the connections, the stores and the protocol's state machine.

mod client_fast_path;
mod commands;
mod deferred_wakes;
mod inbound;
mod inline_run;
mod reminder_delivery;
mod remote;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use bytes::Bytes;
use elastin_protocol::membership::Roster;
use elastin_protocol::store::StateStore;
use elastin_protocol::{Event, MoveError, MoveId, Node, NodeConfig, NodeMeasures, View};
use elastin_runtime::{Remote, Runtime};
use elastin_types::{ActivationEpoch, ActorId, ActorType, Caller, NodeId, Time};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::coalesced_timer::CoalescedTimer;
use crate::frame::{Class, FRAME_BYTES_MAX};
use crate::planted::Planted;
use crate::reminders;
use crate::security::Security;
use crate::serial_executor::SerialExecutor;
use crate::transport::{LinkTraffic, SendError, Transport, TransportConfig, TransportMeasures};
use client_fast_path::ClientFastPath;
use commands::PendingActivation;
use inbound::{InboundHandler, TimerWaker};

/// The largest argument that travels between nodes. A frame has room for it and its header.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - (64 << 10);

/// Callbacks of a node's driver to the layer above it. They run while the driver handles an event: they must not block, and may
/// call the driver.
pub trait NodeCallbacks: Send + Sync + 'static {
    /// A control or admin frame was received.
    fn frame(&self, from: NodeId, class: Class, payload: Bytes);

    /// A new actor needs a node. [`NodeDriver::placed`] answers.
    fn need_placement(&self, actor: ActorId, caller: Caller, caller_node: NodeId);

    /// A move requested with [`NodeDriver::move_actor`] was committed or rejected.
    fn move_ended(&self, id: MoveId, result: Result<ActivationEpoch, MoveError>);
}

/// One node (or client) on the network.
#[derive(Clone)]
pub struct NodeDriver {
    inner: Arc<DriverInner>,
}

struct DriverInner {
    serial_executor: SerialExecutor,
    fast_path: ClientFastPath,
    // Set once, by `attach`: the runtime and the transport hold references back to this.
    transport: OnceLock<Transport>,
    runtime: OnceLock<Runtime>,
    state: Arc<dyn StateStore>,
    saved_types: BTreeSet<ActorType>,
    callbacks: Arc<dyn NodeCallbacks>,
    // Activations that are claimed and not open yet. Their messages wait here, so that they precede those that local callers
    // enqueue directly once the activation is open.
    pending_activations: Mutex<HashMap<ActorId, PendingActivation>>,
    timer: CoalescedTimer,
    // Woken by the runtime's timers when the timer fires; set by `attach`.
    timer_waker: OnceLock<Waker>,
    reminders: reminders::ReminderService,
    /// The end of the lease on the runtime's clock, checked before each save.
    may_act_until: AtomicU64,
    /// Set when a panic has stopped the executor.
    failed: watch::Sender<bool>,
    me: NodeId,
    /// Whether this node hosts actors.
    hosts: bool,
    // Taken by `attach`, which starts the transport.
    transport_config: Mutex<Option<TransportConfig>>,
    this: Weak<DriverInner>,
    planted: Planted,
}

/// Configuration of a [`NodeDriver`].
pub struct NodeDriverConfig {
    /// The cluster's name; nodes of other clusters are refused.
    pub cluster: String,
    /// Configuration of the node's state machine.
    pub node: NodeConfig,
    /// The actor types whose state is saved, and whose activations claim their epoch in the store.
    pub saved_types: BTreeSet<ActorType>,
    /// How nodes authenticate each other.
    pub security: Security,
    /// Accepts connections, if the node can be dialled.
    pub listener: Option<TcpListener>,
    /// Whether connection readers may busy-poll before they park. Otherwise connections are served by ordinary tokio tasks.
    pub busy_poll: bool,
    /// The store of actors' states.
    pub state: Arc<dyn StateStore>,
    /// Planted bugs, for tests.
    pub planted: Planted,
}

/// Metrics of a [`NodeDriver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDriverMeasures {
    /// The receive and the send stage.
    pub transport: TransportMeasures,
    /// The node's state machine.
    pub node: NodeMeasures,
    /// Events, such as received frames, that are queued for the executor.
    pub events_queued: usize,
}

impl NodeDriver {
    /// A node that is not on the network yet. It accepts no connections before [`NodeDriver::attach`] gives it its runtime, and
    /// stays passive until [`NodeDriver::enter`] gives it a view.
    pub fn new(config: NodeDriverConfig, callbacks: Arc<dyn NodeCallbacks>) -> NodeDriver {
        let (me, hosts) = (config.node.me, config.node.hosts);
        let transport_config = TransportConfig {
            cluster: config.cluster,
            me,
            security: config.security,
            listener: config.listener,
            busy_poll: config.busy_poll,
            versions: config.planted.wire_versions(),
        };
        let inner = Arc::new_cyclic(|this| DriverInner {
            serial_executor: SerialExecutor::new(Node::new(config.node)),
            fast_path: ClientFastPath::default(),
            transport: OnceLock::new(),
            runtime: OnceLock::new(),
            state: config.state,
            saved_types: config.saved_types,
            callbacks,
            pending_activations: Mutex::default(),
            timer: CoalescedTimer::new(),
            timer_waker: OnceLock::new(),
            reminders: reminders::ReminderService::new(),
            may_act_until: AtomicU64::new(0),
            failed: watch::Sender::new(false),
            me,
            hosts,
            transport_config: Mutex::new(Some(transport_config)),
            this: this.clone(),
            planted: config.planted,
        });
        NodeDriver { inner }
    }

    /// The runtime's interface to the rest of the cluster.
    pub fn remote(&self) -> Arc<dyn Remote> {
        self.inner.clone()
    }

    /// Gives the node its runtime, once, and starts the transport. Must be called inside a tokio runtime.
    pub fn attach(&self, runtime: Runtime) {
        let inner = &self.inner;
        assert!(inner.runtime.set(runtime).is_ok(), "a node has one runtime");
        let timer_waker = Waker::from(Arc::new(TimerWaker::new(inner)));
        assert!(inner.timer_waker.set(timer_waker).is_ok());
        let receiver = Arc::new(InboundHandler(Arc::downgrade(inner)));
        let config = inner.transport_config.lock().take().expect("`attach` is called once");
        assert!(inner.transport.set(Transport::start(config, receiver)).is_ok());
        inner.reminders.start(Arc::clone(&inner.state), Arc::downgrade(inner));
    }

    /// The time on this process's clock, which leases, deadlines and timers use.
    pub fn now(&self) -> Time {
        self.inner.runtime().now()
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.inner.me
    }

    /// Learns the addresses and certificates of the members.
    pub fn learn(&self, roster: &Roster) {
        let transport = self.inner.transport();
        for (node, record) in &roster.members {
            if let Some(certificate) = &record.certificate {
                transport.learn_certificate(*node, certificate);
            }
            if let Some(address) = record.address {
                transport.learn_address(*node, address);
            }
        }
    }

    /// The membership changed.
    pub fn enter(&self, view: View) {
        let transport = self.inner.transport();
        let before = self.view();
        for gone in before.iter().flat_map(|before| before.members.keys()) {
            if !view.members.contains_key(gone) {
                transport.forget(*gone);
            }
        }
        self.inner.reminders.enter(self.inner.me, &view);
        self.inner.handle(Event::View(view));
    }

    /// The cluster as this node knows it.
    pub fn view(&self) -> Option<View> {
        self.inner
            .serial_executor
            .read(&*self.inner, |node| node.view().cloned())
    }

    /// Whether this node owns the actor's directory slot and may answer for it.
    pub fn answers_for(&self, actor: &ActorId) -> bool {
        self.inner
            .serial_executor
            .read(&*self.inner, |node| node.answers_for(actor))
    }

    /// The node that hosts an actor, according to the directory slots that this node owns.
    pub fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        self.inner
            .serial_executor
            .read(&*self.inner, |node| node.host_of(actor))
    }

    /// Fences this node because its lease may have expired: no turn starts until [`NodeDriver::may_act_until`] extends it.
    pub fn fence(&self) {
        if !self.inner.planted.ignores_lease() {
            self.inner.runtime().fence(true);
        }
    }

    /// Extends the lease to this time on this process's clock. After it, no state is saved and no frame is sent.
    pub fn may_act_until(&self, until: Time) {
        let until = if self.inner.planted.ignores_lease() {
            Time(u64::MAX)
        } else {
            until
        };
        self.inner.may_act_until.store(until.0, Ordering::Relaxed);
        self.inner.handle(Event::MayActUntil(until));
        self.inner.runtime().may_act_until(until);
        // Checked last: a panic may have stopped the node in the meantime.
        if *self.inner.failed.borrow() {
            self.inner.stop_acting();
        }
    }

    /// Requests the move of an actor on this node. [`NodeCallbacks::move_ended`] answers.
    pub fn move_actor(&self, id: MoveId, actor: ActorId, to: NodeId) {
        self.inner.handle(Event::Move { id, actor, to });
    }

    /// Places a new actor: the answer to [`NodeCallbacks::need_placement`].
    pub fn placed(&self, actor: ActorId, node: Option<NodeId>) {
        self.inner.handle(Event::Placed { actor, node });
    }

    /// Announces to all members that this drained node is about to leave. Call it until [`NodeDriver::may_go`] returns true.
    pub fn part(&self) {
        self.inner.handle(Event::Leave);
    }

    /// Whether all members have acknowledged the announced leave and send no more frames to this node.
    pub fn may_go(&self) -> bool {
        self.inner.serial_executor.read(&*self.inner, Node::may_go)
    }

    /// Sends a control or admin frame to a peer.
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        self.inner.transport().send(to, class, payload)
    }

    /// Bytes sent to and received from other nodes so far.
    pub fn traffic_bytes(&self) -> u64 {
        self.inner.transport().traffic_bytes()
    }

    /// Traffic on the connections with a peer.
    pub fn traffic_with(&self, peer: NodeId) -> LinkTraffic {
        self.inner.transport().traffic_with(peer)
    }

    /// Metrics of the receive and the send stage, and of the node's state machine.
    pub fn measures(&self) -> NodeDriverMeasures {
        let inner = &self.inner;
        NodeDriverMeasures {
            transport: inner.transport().measures(),
            node: inner.serial_executor.read(&**inner, Node::measures),
            events_queued: inner.serial_executor.queued(),
        }
    }

    /// Waits until the transport's own threads have run every task that was queued before this call.
    pub async fn caught_up(&self) {
        self.inner.transport().caught_up().await;
    }

    /// Waits until a panic has stopped this node. It handles no more events then, and its owner must end it.
    pub async fn failed(&self) {
        // The sender lives in `self`, so waiting can't fail.
        let _ = self.inner.failed.subscribe().wait_for(|failed| *failed).await;
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.inner.transport().close();
    }

    /// Ends a client that is no longer a member: closes all connections and completes every pending call. Later calls are
    /// completed as not delivered.
    pub fn end(&self) {
        self.close();
        self.inner.handle(Event::Evicted);
    }
}

impl DriverInner {
    fn transport(&self) -> &Transport {
        self.transport
            .get()
            .expect("the driver is attached before it handles events")
    }

    fn runtime(&self) -> &Runtime {
        self.runtime
            .get()
            .expect("the driver is attached before it handles events")
    }

    fn handle(&self, event: Event) {
        self.serial_executor.handle(event.into(), self);
    }

    /// Stops for good: no turn starts, no state is saved, and no reply is sent.
    fn stop_acting(&self) {
        self.may_act_until.store(0, Ordering::Relaxed);
        self.runtime().fence(true);
    }
}
