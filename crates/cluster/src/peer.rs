//! A node's driver: carries events between runtime, connections, stores and the node's state machine.

mod reminding;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use elastin_actor::{ReminderDone, ReminderRequest, ReplySlot};
use elastin_protocol::store::{StateError, StateReply, StateRequest, StateStore};
use elastin_protocol::{Command, Event, Frame, MoveError, MoveId, Node, NodeConfig, StateSource, View};
use elastin_runtime::{Grant, Mail, Outside, Runtime, SaveDone, SaveError, StateImage};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, Caller, Message, NodeId, NotDelivered, Outcome, Rejected,
    Time, Unknown,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::alarm::Alarm;
use crate::frame::{Class, FRAME_BYTES_MAX};
use crate::machine::{Hands, Machine};
use crate::reminders;
use crate::security::Security;
use crate::transport::{Receiver, SendError, Transport, TransportConfig};

/// The largest argument that travels between nodes: a frame has room for it with its header.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - (64 << 10);

/// What a node's driver leaves to the composition above it. Called while the driver works: it must not block, and may call
/// the driver.
pub trait Above: Send + Sync + 'static {
    /// A control or admin frame came.
    fn frame(&self, from: NodeId, class: Class, payload: Bytes);

    /// A new actor needs a node: [`Peer::placed`] answers.
    fn need_placement(&self, actor: ActorId, caller: Caller, caller_node: NodeId);

    /// A move asked for with [`Peer::move_actor`] was decided.
    fn move_ended(&self, id: MoveId, result: Result<ActivationEpoch, MoveError>);
}

/// One node (or client) on the network.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    machine: Machine,
    // Set once, by `attach`: the runtime and the transport know this in turn.
    transport: OnceLock<Transport>,
    runtime: OnceLock<Runtime>,
    state: Arc<dyn StateStore>,
    saved_types: BTreeSet<ActorType>,
    above: Arc<dyn Above>,
    // Activations that are claimed and closed: their mail waits here, so that it comes before any that callers on this
    // node put in themselves once they are open.
    closed: Mutex<HashMap<ActorId, Closed>>,
    // Callers on this node that wait for a reply from elsewhere.
    waiting: Mutex<HashMap<CallId, ReplySlot>>,
    alarm: Arc<Alarm>,
    reminders: reminders::Desk,
    /// Until when the lease is good, on the runtime's clock: looked at before each save.
    may_act_until: AtomicU64,
    me: NodeId,
    // How to go on the network, until the node does.
    network: Mutex<Option<TransportConfig>>,
    this: Weak<Inner>,
    #[cfg(feature = "planted-bugs")]
    unfenced: bool,
}

/// An activation that waits to be opened.
struct Closed {
    epoch: ActivationEpoch,
    image: Option<StateImage>,
    mail: Vec<Mail>,
}

/// What a [`Peer`] is made with.
pub struct PeerConfig {
    /// The cluster's name; nodes of other clusters are refused.
    pub cluster: String,
    /// The node's part in the protocol.
    pub node: NodeConfig,
    /// The actor types whose state is saved, and whose activations claim their epoch in the store.
    pub saved_types: BTreeSet<ActorType>,
    /// How nodes make sure that they talk to nodes of their cluster.
    pub security: Security,
    /// Where connections are accepted, if the node can be dialled.
    pub listener: Option<TcpListener>,
    /// Where state is saved.
    pub state: Arc<dyn StateStore>,
    /// Acts although its lease may have run out.
    #[cfg(feature = "planted-bugs")]
    pub unfenced: bool,
}

impl Peer {
    /// A node that is about to go on the network: it listens to nobody before [`Peer::attach`] gives it its runtime, and
    /// does nothing before [`Peer::enter`] gives it a view.
    pub fn new(config: PeerConfig, above: Arc<dyn Above>) -> Peer {
        let me = config.node.me;
        let network = TransportConfig {
            cluster: config.cluster,
            me,
            security: config.security,
            listener: config.listener,
        };
        let inner = Arc::new_cyclic(|this| Inner {
            machine: Machine::new(Node::new(config.node)),
            transport: OnceLock::new(),
            runtime: OnceLock::new(),
            state: config.state,
            saved_types: config.saved_types,
            above,
            closed: Mutex::default(),
            waiting: Mutex::default(),
            alarm: Arc::new(Alarm::new()),
            reminders: reminders::Desk::new(),
            may_act_until: AtomicU64::new(0),
            me,
            network: Mutex::new(Some(network)),
            this: this.clone(),
            #[cfg(feature = "planted-bugs")]
            unfenced: config.unfenced,
        });
        Peer { inner }
    }

    /// What the runtime needs to be built with.
    pub fn outside(&self) -> Arc<dyn Outside> {
        self.inner.clone()
    }

    /// Gives the node its runtime, once, and goes on the network. Must be called inside a tokio runtime.
    pub fn attach(&self, runtime: Runtime) {
        let inner = &self.inner;
        assert!(inner.runtime.set(runtime).is_ok(), "a node has one runtime");
        let receiver = Arc::new(Ear(Arc::downgrade(inner)));
        let network = inner.network.lock().take().expect("a node goes on the network once");
        assert!(inner.transport.set(Transport::start(network, receiver)).is_ok());
        tokio::spawn(ring(Arc::downgrade(inner), Arc::clone(&inner.alarm)));
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

    /// Learns where members can be dialled.
    pub fn learn_addresses(&self, addresses: impl IntoIterator<Item = (NodeId, SocketAddr)>) {
        let transport = self.inner.transport();
        for (node, address) in addresses {
            transport.learn_address(node, address);
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
        self.inner.machine.look(|node| node.view().cloned())
    }

    /// The node that an actor is on, as the part of the directory that this node owns has it.
    pub fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        self.inner.machine.look(|node| node.host_of(actor))
    }

    /// The lease may have run out: no turn starts until [`Peer::may_act_until`] says otherwise.
    pub fn fence(&self) {
        if !self.inner.is_unfenced() {
            self.inner.runtime().fence(true);
        }
    }

    /// The lease is good until this time on this process's clock: from then on nothing is saved and nothing leaves.
    pub fn may_act_until(&self, until: Time) {
        let until = if self.inner.is_unfenced() {
            Time(u64::MAX)
        } else {
            until
        };
        self.inner.may_act_until.store(until.0, Ordering::Relaxed);
        self.inner.handle(Event::MayActUntil(until));
        self.inner.runtime().fence(self.now() >= until);
    }

    /// Wants an actor of this node moved; [`Above::move_ended`] answers.
    pub fn move_actor(&self, id: MoveId, actor: ActorId, to: NodeId) {
        self.inner.handle(Event::Move { id, actor, to });
    }

    /// Says where a new actor goes: the answer to [`Above::need_placement`].
    pub fn placed(&self, actor: ActorId, node: Option<NodeId>) {
        self.inner.handle(Event::Placed { actor, node });
    }

    /// Sends a control or admin frame to a peer.
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        self.inner.transport().send(to, class, payload)
    }

    /// Bytes sent to and received from other nodes so far.
    pub fn traffic_bytes(&self) -> u64 {
        self.inner.transport().traffic_bytes()
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.inner.transport().close();
    }
}

impl Inner {
    fn transport(&self) -> &Transport {
        self.transport.get().expect("a peer is attached before it takes part")
    }

    /// A bug on purpose.
    fn is_unfenced(&self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.unfenced;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.get().expect("a peer is attached before it takes part")
    }

    fn handle(&self, event: Event) {
        self.machine.handle(event, self);
    }

    fn activate(&self, actor: ActorId, epoch: ActivationEpoch, source: StateSource) {
        let staged = match source {
            StateSource::Fresh => None,
            StateSource::Staged(state) => Some(StateImage { state, moved: true }),
        };
        if !self.saved_types.contains(&actor.kind) {
            return self.activated(actor, epoch, Ok(staged));
        }
        let this = self.this.clone();
        let claim = StateRequest::Claim {
            actor: actor.clone(),
            epoch,
            claimer: self.me,
        };
        self.state.submit(
            claim,
            Box::new(move |claimed| {
                let Some(this) = this.upgrade() else { return };
                let image = match claimed {
                    // What was staged is at least as new as what is stored: the source saved before it replied.
                    Ok(StateReply::Claimed { state }) => {
                        Ok(staged.or(state.map(|state| StateImage { state, moved: false })))
                    }
                    Ok(other) => unreachable!("a claim is answered by Claimed, not {other:?}"),
                    Err(error) => Err(error),
                };
                this.activated(actor, epoch, image);
            }),
        );
    }

    fn activated(&self, actor: ActorId, epoch: ActivationEpoch, image: Result<Option<StateImage>, StateError>) {
        let result = match image {
            Ok(image) => {
                self.closed.lock().insert(
                    actor.clone(),
                    Closed {
                        epoch,
                        image,
                        mail: Vec::new(),
                    },
                );
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%epoch, %error, "an actor could not be claimed");
                Err(CallError::NotDelivered(NotDelivered::StateUnavailable))
            }
        };
        self.handle(Event::Activated { actor, epoch, result });
    }

    fn deliver(&self, epoch: ActivationEpoch, message: Message) -> Option<Event> {
        if let Some(closed) = self
            .closed
            .lock()
            .get_mut(&message.target)
            .filter(|closed| closed.epoch == epoch)
        {
            closed.mail.push(message.into());
            return None;
        }
        let undeliverable = self.runtime().deliver(message, epoch).err()?;
        Some(Event::Bounced {
            epoch,
            message: undeliverable.0.message,
        })
    }

    fn open(&self, actor: ActorId, epoch: ActivationEpoch) -> Vec<Event> {
        let closed = {
            let mut closed = self.closed.lock();
            match closed.get(&actor) {
                Some(waiting) if waiting.epoch == epoch => closed.remove(&actor),
                _ => None,
            }
        };
        let Some(closed) = closed else {
            self.runtime().resume(&actor, epoch);
            return Vec::new();
        };
        match self.runtime().activate(&actor, epoch, closed.image, closed.mail) {
            Ok(()) => Vec::new(),
            Err((error, mail)) => {
                tracing::error!(%epoch, %error, "an actor could not be activated");
                let mut events = self.fail(mail, &CallError::NotDelivered(NotDelivered::StateUnavailable));
                events.push(Event::Passivated { actor, epoch });
                events
            }
        }
    }

    fn discard(&self, actor: &ActorId, epoch: ActivationEpoch) -> Vec<Event> {
        let mut mail = self.runtime().discard(actor, epoch);
        let mut closed = self.closed.lock();
        if closed.get(actor).is_some_and(|closed| closed.epoch == epoch) {
            mail.extend(closed.remove(actor).into_iter().flat_map(|closed| closed.mail));
        }
        drop(closed);
        self.fail(mail, &CallError::Unknown(Unknown::NodeLost))
    }

    /// Ends the calls in some mail with an error: those of this node's own callers at once, the others as events.
    fn fail(&self, mail: Vec<Mail>, error: &CallError) -> Vec<Event> {
        mail.into_iter()
            .filter_map(|Mail { message, reply }| match reply {
                Some(reply) => {
                    reply.complete(Err(error.clone()));
                    None
                }
                None => Some(Event::Replied {
                    call: message.header.call,
                    outcome: Err(error.clone()),
                }),
            })
            .collect()
    }

    fn freeze(&self, actor: ActorId, epoch: ActivationEpoch, deadline: Time) {
        let this = self.this.clone();
        let whose = actor.clone();
        let done = move |frozen: Result<StateImage, elastin_runtime::FreezeError>| {
            let Some(this) = this.upgrade() else { return };
            let image = match frozen {
                Ok(image) => Some(image.state),
                Err(error) => {
                    tracing::debug!(%epoch, %error, "an actor was not frozen");
                    None
                }
            };
            this.handle(Event::Frozen { actor, epoch, image });
        };
        self.runtime().freeze(&whose, epoch, deadline, Box::new(done));
    }

    fn release(&self, actor: ActorId, epoch: ActivationEpoch) -> Event {
        // Nothing to release if the activation ended by itself: the event that says so is on its way.
        let released = self.runtime().release(&actor, epoch).unwrap_or_default();
        let mut waiting = self.waiting.lock();
        let queue = released
            .into_iter()
            .map(|Mail { message, reply }| {
                if let Some(reply) = reply {
                    waiting.insert(message.header.call, reply);
                }
                message
            })
            .collect();
        drop(waiting);
        Event::Released { actor, epoch, queue }
    }

    fn transmit(&self, to: NodeId, frame: &Frame) {
        // Encoding can't fail: everything in a frame is plain data.
        let payload = postcard::to_stdvec(frame).expect("a frame can be encoded");
        if let Err(error) = self.transport().send(to, Class::Protocol, &payload) {
            // It is transmitted again when the link is up or after a while.
            tracing::debug!(%to, %error, "a frame was dropped");
        }
    }
}

impl Hands for Inner {
    fn now(&self) -> Time {
        self.runtime().now()
    }

    fn carry_out(&self, command: Command) -> Vec<Event> {
        match command {
            Command::Transmit { to, frame } => self.transmit(to, &frame),
            Command::Complete { call, outcome } => {
                if let Some(reply) = self.waiting.lock().remove(&call) {
                    reply.complete(outcome);
                }
            }
            Command::Deliver { epoch, message, .. } => return self.deliver(epoch, message).into_iter().collect(),
            Command::Activate { actor, epoch, source } => self.activate(actor, epoch, source),
            Command::Open { actor, epoch } => return self.open(actor, epoch),
            Command::Freeze { actor, epoch, deadline } => self.freeze(actor, epoch, deadline),
            Command::Resume { actor, epoch } => drop(self.runtime().resume(&actor, epoch)),
            Command::Release { actor, epoch } => return vec![self.release(actor, epoch)],
            Command::Discard { actor, epoch } => return self.discard(&actor, epoch),
            Command::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => {
                self.above.need_placement(actor, caller, caller_node);
            }
            Command::MoveEnded { id, result } => self.above.move_ended(id, result),
        }
        Vec::new()
    }

    fn wake_at(&self, at: Option<Time>) {
        self.alarm.set(at);
    }
}

impl Outside for Inner {
    fn may_activate_here(&self, _: &ActorId) -> Option<Grant> {
        // The directory decides.
        None
    }

    fn send(&self, message: Message, reply: Option<ReplySlot>) {
        let call = message.header.call;
        let bytes = message.body.len();
        if bytes > MESSAGE_BYTES_MAX {
            let too_large = Rejected::TooLarge {
                bytes,
                max: MESSAGE_BYTES_MAX,
            };
            if let Some(reply) = reply {
                reply.complete(Err(CallError::Rejected(too_large)));
            }
            return;
        }
        if let Some(reply) = reply {
            self.waiting.lock().insert(call, reply);
        }
        self.machine.handle_now(Event::Send { message }, self);
    }

    fn give_up(&self, call: CallId) {
        let slot = self.waiting.lock().remove(&call);
        if slot.is_some() {
            self.handle(Event::GiveUp { call });
        }
    }

    fn reply(&self, call: CallId, outcome: Outcome) {
        self.handle(Event::Replied { call, outcome });
    }

    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        if self.runtime().now().0 >= self.may_act_until.load(Ordering::Relaxed) {
            return done(Err(SaveError::Unavailable("the node's lease may have run out".into())));
        }
        let request = StateRequest::Save {
            actor: actor.clone(),
            epoch,
            state,
        };
        self.state.submit(
            request,
            Box::new(move |saved| done(saved.map(drop).map_err(save_error))),
        );
    }

    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        self.machine.look(|node| node.last_known(actor))
    }

    fn remind(&self, actor: &ActorId, request: ReminderRequest, done: ReminderDone) {
        tokio::spawn(reminding::remind(self.this.clone(), actor.clone(), request, done));
    }

    fn passivated(&self, actor: &ActorId, epoch: ActivationEpoch) {
        self.handle(Event::Passivated {
            actor: actor.clone(),
            epoch,
        });
    }
}

fn save_error(error: StateError) -> SaveError {
    match error {
        StateError::Fenced { .. } => SaveError::Superseded,
        error => SaveError::Unavailable(error.to_string()),
    }
}

/// What the transport tells a peer, without keeping it alive.
struct Ear(Weak<Inner>);

impl Receiver for Ear {
    fn frame(&self, from: NodeId, class: Class, payload: Bytes) {
        let Some(inner) = self.0.upgrade() else { return };
        match class {
            Class::Protocol => match postcard::from_bytes(&payload) {
                Ok(frame) => inner.handle(Event::Frame { from, frame }),
                Err(error) => tracing::warn!(%from, %error, "a frame could not be decoded"),
            },
            Class::Control | Class::Admin => inner.above.frame(from, class, payload),
            Class::Reminder => match postcard::from_bytes(&payload) {
                Ok(note) => inner.reminders.note(note),
                Err(error) => tracing::warn!(%from, %error, "a note of a reminder could not be decoded"),
            },
            Class::Handshake => tracing::warn!(%from, "a second greeting was ignored"),
        }
    }

    fn link_up(&self, peer: NodeId) {
        if let Some(inner) = self.0.upgrade() {
            inner.handle(Event::LinkUp { peer });
        }
    }

    fn link_down(&self, peer: NodeId) {
        if let Some(inner) = self.0.upgrade() {
            inner.handle(Event::LinkDown { peer });
        }
    }
}

/// Wakes the machine when it wants to be woken.
async fn ring(inner: Weak<Inner>, alarm: Arc<Alarm>) {
    while let Some(now) = inner.upgrade().map(|inner| inner.now()) {
        if alarm.is_due(now) {
            // It is set anew when the machine has taken this in.
            alarm.set(None);
            if let Some(inner) = inner.upgrade() {
                inner.handle(Event::Timer);
            }
        }
        alarm.wait(now).await;
    }
}
