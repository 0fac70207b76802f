//! A node's driver: carries events between runtime, connections, stores and the node's state executor.

mod commands;
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
use commands::Closed;
use inbound::{InboundHandler, TimerWaker};

/// The largest argument that travels between nodes: a frame has room for it with its header.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - (64 << 10);

/// What a node's driver leaves to the composition above it. Called while the driver works: it must not block, and may call
/// the driver.
pub trait NodeCallbacks: Send + Sync + 'static {
    /// A control or admin frame came.
    fn frame(&self, from: NodeId, class: Class, payload: Bytes);

    /// A new actor needs a node: [`NodeDriver::placed`] answers.
    fn need_placement(&self, actor: ActorId, caller: Caller, caller_node: NodeId);

    /// A move asked for with [`NodeDriver::move_actor`] was decided.
    fn move_ended(&self, id: MoveId, result: Result<ActivationEpoch, MoveError>);
}

/// One node (or client) on the network.
#[derive(Clone)]
pub struct NodeDriver {
    inner: Arc<Inner>,
}

struct Inner {
    serial_executor: SerialExecutor,
    // Set once, by `attach`: the runtime and the transport know this in turn.
    transport: OnceLock<Transport>,
    runtime: OnceLock<Runtime>,
    state: Arc<dyn StateStore>,
    saved_types: BTreeSet<ActorType>,
    above: Arc<dyn NodeCallbacks>,
    // Activations that are claimed and closed: their mail waits here, so that it comes before any that callers on this
    // node put in themselves once they are open.
    closed: Mutex<HashMap<ActorId, Closed>>,
    timer: CoalescedTimer,
    // What the runtime's timers wake when the timer rings; set by `attach`.
    timer_waker: OnceLock<Waker>,
    reminders: reminders::ReminderService,
    /// Until when the lease is good, on the runtime's clock: looked at before each save.
    may_act_until: AtomicU64,
    /// The executor has stopped after a panic.
    failed: watch::Sender<bool>,
    me: NodeId,
    /// Whether actors can be here.
    hosts: bool,
    // How to go on the network, until the node does.
    network: Mutex<Option<TransportConfig>>,
    this: Weak<Inner>,
    planted: Planted,
}

/// What a [`NodeDriver`] is made with.
pub struct NodeDriverConfig {
    /// The cluster's name; nodes of other clusters are refused.
    pub cluster: String,
    /// The node's part in the protocol.
    pub node: NodeConfig,
    /// The actor types whose state is saved, and whose activations claim their epoch in the store.
    pub saved_types: BTreeSet<ActorType>,
    /// How nodes make sure that they talk to nodes of their cluster.
    pub security: Security,
    /// Where connections are accepted, if the node can be outgoing socket.
    pub listener: Option<TcpListener>,
    /// Whether who reads connections may look for frames for a moment before it sleeps.
    pub looks: bool,
    /// Where state is saved.
    pub state: Arc<dyn StateStore>,
    /// What it does wrong on purpose.
    pub planted: Planted,
}

/// What is measured of a [`NodeDriver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDriverMeasures {
    /// The receive and the send stage.
    pub transport: TransportMeasures,
    /// The node's part in the protocol.
    pub node: NodeMeasures,
    /// Events, such as frames that came, that wait for the thread that runs the protocol.
    pub events_queued: usize,
}

impl NodeDriver {
    /// A node that is about to go on the network: it listens to nobody before [`NodeDriver::attach`] gives it its runtime, and
    /// does nothing before [`NodeDriver::enter`] gives it a view.
    pub fn new(config: NodeDriverConfig, above: Arc<dyn NodeCallbacks>) -> NodeDriver {
        let (me, hosts) = (config.node.me, config.node.hosts);
        let network = TransportConfig {
            cluster: config.cluster,
            me,
            security: config.security,
            listener: config.listener,
            looks: config.looks,
            versions: config.planted.wire_versions(),
        };
        let inner = Arc::new_cyclic(|this| Inner {
            serial_executor: SerialExecutor::new(Node::new(config.node)),
            transport: OnceLock::new(),
            runtime: OnceLock::new(),
            state: config.state,
            saved_types: config.saved_types,
            above,
            closed: Mutex::default(),
            timer: CoalescedTimer::new(),
            timer_waker: OnceLock::new(),
            reminders: reminders::ReminderService::new(),
            may_act_until: AtomicU64::new(0),
            failed: watch::Sender::new(false),
            me,
            hosts,
            network: Mutex::new(Some(network)),
            this: this.clone(),
            planted: config.planted,
        });
        NodeDriver { inner }
    }

    /// What the runtime needs to be built with.
    pub fn outside(&self) -> Arc<dyn Remote> {
        self.inner.clone()
    }

    /// Gives the node its runtime, once, and goes on the network. Must be called inside a tokio runtime.
    pub fn attach(&self, runtime: Runtime) {
        let inner = &self.inner;
        assert!(inner.runtime.set(runtime).is_ok(), "a node has one runtime");
        let timer_waker = Waker::from(Arc::new(TimerWaker::new(inner)));
        assert!(inner.timer_waker.set(timer_waker).is_ok());
        let receiver = Arc::new(InboundHandler(Arc::downgrade(inner)));
        let network = inner.network.lock().take().expect("a node goes on the network once");
        assert!(inner.transport.set(Transport::start(network, receiver)).is_ok());
        inner.reminders.start(Arc::clone(&inner.state), Arc::downgrade(inner));
    }

    /// The time on this process's clock, which leases, deadlines and timers are on.
    pub fn now(&self) -> Time {
        self.inner.runtime().now()
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.inner.me
    }

    /// Learns where members can be outgoing socket, and which certificates they show.
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
            .busy_poll(&*self.inner, |node| node.view().cloned())
    }

    /// Whether this node keeps the part of the directory that an actor belongs to, and may answer for it.
    pub fn answers_for(&self, actor: &ActorId) -> bool {
        self.inner
            .serial_executor
            .busy_poll(&*self.inner, |node| node.answers_for(actor))
    }

    /// The node that an actor is on, as the part of the directory that this node owns has it.
    pub fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        self.inner
            .serial_executor
            .busy_poll(&*self.inner, |node| node.host_of(actor))
    }

    /// The lease may have run out: no turn starts until [`NodeDriver::may_act_until`] says otherwise.
    pub fn fence(&self) {
        if !self.inner.planted.ignores_lease() {
            self.inner.runtime().fence(true);
        }
    }

    /// The lease is good until this time on this process's clock: from then on nothing is saved and nothing leaves.
    pub fn may_act_until(&self, until: Time) {
        let until = if self.inner.planted.ignores_lease() {
            Time(u64::MAX)
        } else {
            until
        };
        self.inner.may_act_until.store(until.0, Ordering::Relaxed);
        self.inner.handle(Event::MayActUntil(until));
        self.inner.runtime().may_act_until(until);
        // Looked at last: a panic may have stopped the node meanwhile.
        if *self.inner.failed.borrow() {
            self.inner.stop_acting();
        }
    }

    /// Wants an actor of this node moved; [`NodeCallbacks::move_ended`] answers.
    pub fn move_actor(&self, id: MoveId, actor: ActorId, to: NodeId) {
        self.inner.handle(Event::Move { id, actor, to });
    }

    /// Says where a new actor goes: the answer to [`NodeCallbacks::need_placement`].
    pub fn placed(&self, actor: ActorId, node: Option<NodeId>) {
        self.inner.handle(Event::Placed { actor, node });
    }

    /// Says to everybody that this node, which hosts nobody any more, is about to go. To be called until [`NodeDriver::may_go`].
    pub fn part(&self) {
        self.inner.handle(Event::Part);
    }

    /// Whether nobody sends anything to this node any more, since it said that it is about to go.
    pub fn may_go(&self) -> bool {
        self.inner.serial_executor.busy_poll(&*self.inner, Node::may_go)
    }

    /// Sends a control or admin frame to a peer.
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        self.inner.transport().send(to, class, payload)
    }

    /// Bytes sent to and received from other nodes so far.
    pub fn traffic_bytes(&self) -> u64 {
        self.inner.transport().traffic_bytes()
    }

    /// What went over the connections with a peer.
    pub fn traffic_with(&self, peer: NodeId) -> LinkTraffic {
        self.inner.transport().traffic_with(peer)
    }

    /// What is measured of the receive and the send stage, and of the node's part in the protocol.
    pub fn measures(&self) -> NodeDriverMeasures {
        let inner = &self.inner;
        NodeDriverMeasures {
            transport: inner.transport().measures(),
            node: inner.serial_executor.busy_poll(&**inner, Node::measures),
            events_queued: inner.serial_executor.queued(),
        }
    }

    /// Waits until the threads that read connections are done with all that they had begun, or were about to.
    pub async fn caught_up(&self) {
        self.inner.transport().caught_up().await;
    }

    /// Waits until a panic has stopped this node. It does nothing any more then: whoever steers it must end it.
    pub async fn failed(&self) {
        // The sender lives in `self`, so waiting can't fail.
        let _ = self.inner.failed.subscribe().wait_for(|failed| *failed).await;
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.inner.transport().close();
    }

    /// This client is no longer a member: closes all connections, and lets every call end as far as its fate is known. Whoever
    /// calls from now on is completed that the call was not delivered.
    pub fn end(&self) {
        self.close();
        self.inner.handle(Event::Evicted);
    }
}

impl Inner {
    fn transport(&self) -> &Transport {
        self.transport.get().expect("a peer is attached before it takes part")
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.get().expect("a peer is attached before it takes part")
    }

    fn handle(&self, event: Event) {
        self.serial_executor.handle(event.into(), self);
    }

    /// No turn starts any more, nothing is saved, and no reply leaves.
    fn stop_acting(&self) {
        self.may_act_until.store(0, Ordering::Relaxed);
        self.runtime().fence(true);
    }
}
