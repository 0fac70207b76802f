//! One process's part in the cluster.
//!
//! ```text
//!   event ─► Node ─► a part, with the environment ─► commands, frames, timers (env)
//!             ▲                  │
//!             └──────────────────┘ effects that concern other parts
//! ```
//!
//! Each part owns its state and keeps its fields private:
//!
//! - [`env`]: time, view, lease, sessions with peers, timers, commands. Every handler borrows it.
//! - [`calls`]: outcomes for callers on this node.
//! - [`dedup`]: requests, of whose calls an activation runs one.
//! - [`routing`]: paths to actors on other nodes.
//! - [`hosting`]: activations on this node, from the directory's grant to their end.
//! - [`migration`]: moves of activations, source and target side.
//! - [`directory`]: the directory slots owned here, and their transfer between owners.
//!
//! [`Node`] dispatches events to the parts (`frames`, `view_change`, `leave`, `evicted`) and applies their effects
//! (`effect`).

mod authorization;
mod calls;
mod chunking;
mod dedup;
mod directory;
mod effect;
mod env;
mod evicted;
mod frames;
mod hosting;
mod leave;
mod measures;
mod migration;
mod routing;
mod sizes;
mod view_change;

use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, Caller, Message, NodeId, NotDelivered, Time};

use crate::{Command, Event, NodeConfig, PlannedMove, View};

pub use dedup::{MovedRequest, RequestId};
pub use measures::{NodeMeasures, Rejections};
pub use sizes::TableSizes;

use calls::Calls;
use dedup::OpenRequests;
use directory::Directory;
use env::{Due, Env};
use hosting::Hosting;
use leave::LeavePhase;
use migration::{MovesIn, MovesOut, Released};
use routing::Routing;

/// One process's part in the cluster.
///
/// It routes its callers' messages to actors, hosts and moves activations, and serves the directory slots that the view
/// assigns to it.
#[derive(Debug)]
pub struct Node {
    env: Env,
    calls: Calls,
    requests: OpenRequests,
    routing: Routing,
    hosting: Hosting,
    moves_out: MovesOut,
    moves_in: MovesIn,
    directory: Directory,
    rejections: Rejections,
    /// Number of bodies rejected because their sender was not authorized to send them.
    refused: u64,
    /// Progress of this node's departure.
    leave_phase: LeavePhase,
    /// Whether this node has lost its membership.
    evicted: bool,
}

impl Node {
    /// Creates a node without a [`View`]: it can do nothing until it receives one.
    pub fn new(config: NodeConfig) -> Self {
        Self {
            env: Env::new(config.me, config.limits),
            calls: Calls::new(config.me),
            requests: OpenRequests::default(),
            routing: Routing::default(),
            hosting: Hosting::new(config.hosts),
            moves_out: MovesOut::default(),
            moves_in: MovesIn::default(),
            directory: Directory::default(),
            rejections: Rejections::default(),
            refused: 0,
            leave_phase: LeavePhase::No,
            evicted: false,
        }
    }

    /// Plants a bug, so that a test can check that the simulator finds it.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: crate::Bug) {
        self.env.planted.bug = Some(bug);
    }

    /// This node's id.
    pub fn me(&self) -> NodeId {
        self.env.me
    }

    /// The newest view of the cluster that this node has received.
    pub fn view(&self) -> Option<&View> {
        self.env.view.as_ref()
    }

    /// The time at which the driver must send the next [`Event::Timer`].
    pub fn next_timer(&self) -> Option<Time> {
        self.env.timers.next()
    }

    /// The activations on this node that accept messages, in no particular order.
    pub fn active(&self) -> impl Iterator<Item = (ActorId, ActivationEpoch)> {
        self.hosting.active()
    }

    /// The host of an actor when this node last sent it a message.
    pub fn last_known(&self, actor: &ActorId) -> Option<NodeId> {
        self.routing.last_known(actor)
    }

    /// Whether this node owns the directory slot of an actor and the slot is open. A slot that is still being
    /// transferred here is not.
    pub fn answers_for(&self, actor: &ActorId) -> bool {
        self.directory.answers_for(actor)
    }

    /// The host of an actor, according to the directory slots owned by this node.
    pub fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        self.directory.host_of(actor)
    }

    /// Begins a request of a local caller and returns its number, or `None` if too many are open.
    ///
    /// Its calls are [sent](Event::Send) with that number in their headers. Each has its own call id and none is
    /// enqueued directly into a mailbox. [`Settle`](Event::Settle) ends the request.
    pub fn begin_request(&mut self) -> Option<u64> {
        self.requests.begin(&self.routing, self.env.limits.requests_open)
    }

    /// Handles one event and appends the resulting commands to `out`. `now` never decreases.
    ///
    /// A panic indicates a bug in this crate and leaves the node in an undefined state: the driver must stop it for
    /// good.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.env.now = self.env.now.max(now);
        std::mem::swap(&mut self.env.out, out);
        self.env.check_lease(matches!(event, Event::Timer));
        if !matches!(event, Event::Bounced { .. }) {
            self.env.settle_deliveries();
            self.hosting.report_landed(&mut self.env);
        }
        self.dispatch(event);
        self.moves_out.begin_waiting(&mut self.env, &mut self.hosting);
        self.drain_loopback();
        self.moves_out
            .settling
            .report(&mut self.env, &self.hosting, &self.routing);
        std::mem::swap(&mut self.env.out, out);
    }

    fn dispatch(&mut self, event: Event) {
        if self.evicted {
            return self.dispatch_evicted(event);
        }
        let (env, calls, hosting) = (&mut self.env, &mut self.calls, &mut self.hosting);
        match event {
            Event::Send { message } => self.on_send(message),
            Event::Settle { request } => self.requests.settle(&self.routing, request),
            Event::GiveUp { call } => {
                calls.forget(env, call);
            }
            Event::Frame { from, frame } => self.on_frame(from, frame),
            Event::LinkUp { peer } => env.link_up(peer),
            Event::LinkDown { peer } => env.link_down(peer),
            Event::View(view) => self.on_view(view),
            Event::MayActUntil(until) => env.may_act_until(until),
            Event::Activated { actor, epoch, result } => self.on_activated(actor, epoch, result),
            Event::Frozen { actor, epoch, image } => self.moves_out.on_frozen(env, hosting, &actor, epoch, image),
            Event::Released { actor, epoch, queue } => self.on_released(&actor, epoch, queue),
            Event::Passivated { actor, epoch } => self.on_passivated(actor, epoch),
            Event::Bounced { epoch, message } => self.on_bounced(epoch, message),
            Event::Replied { call, outcome } => hosting.on_replied(env, calls, call, outcome),
            Event::Move { id, actor, to } => self.moves_out.on_move(env, hosting, PlannedMove { id, actor, to }),
            Event::Moves(moves) => self.moves_out.on_moves(env, moves),
            Event::MoveTogether(moves) => self.moves_out.on_move_together(env, hosting, moves),
            Event::Placed { actor, node } => {
                for message in self.directory.on_placed(env, actor, node) {
                    self.reject(&message, CallError::NotDelivered(NotDelivered::NoPlace));
                }
            }
            Event::Leave => self.on_leave(),
            Event::Evicted => self.on_evicted(),
            Event::Timer => self.on_timer(),
        }
    }

    /// Handles a message sent by a local caller.
    fn on_send(&mut self, mut message: Arc<Message>) {
        if message.header.request.is_some() {
            self.requests
                .stamp(&self.env, &self.routing, Arc::make_mut(&mut message));
        }
        self.calls.expect(&mut self.env, &message);
        if self.env.view.is_none() {
            return self.reject(&message, CallError::NotDelivered(NotDelivered::Unreachable));
        }
        self.send_own(message);
    }

    /// Handles the runtime's result of an activation.
    fn on_activated(&mut self, actor: ActorId, epoch: ActivationEpoch, result: Result<(), CallError>) {
        let Some(held) = self.hosting.take_activating(&actor, epoch) else {
            return;
        };
        match result {
            Ok(()) => {
                self.hosting.loaded(&mut self.env, &mut self.calls, &actor, held);
                self.open_if_clear(&actor);
            }
            Err(error) => {
                for held in held {
                    self.reject(&held.message, error.clone());
                }
                self.hosting.leave(&mut self.env, actor);
            }
        }
    }

    /// Handles the queue of an activation that has moved away. The messages held since follow it to the new host.
    fn on_released(&mut self, actor: &ActorId, epoch: ActivationEpoch, mut queue: Vec<Arc<Message>>) {
        if !self.hosting.is_releasing(actor, epoch) {
            return;
        }
        for message in &mut queue {
            self.hosting.dedup().relabel(message);
            // A local caller may have enqueued it directly; its outcome comes from the new host.
            self.calls.expect(&mut self.env, message);
        }
        let Released { rejected, held, place } =
            self.moves_out
                .on_released(&mut self.env, &mut self.hosting, actor, epoch, queue);
        for message in rejected {
            self.reject(&message, CallError::NotDelivered(NotDelivered::NotHere));
        }
        if let Some((node, epoch)) = place {
            self.routing.follow(actor, node, epoch);
        }
        self.send_elsewhere(held, place);
    }

    /// Handles an activation that ended by itself.
    fn on_passivated(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        if self.hosting.is_active(&actor, epoch) {
            self.moves_out
                .on_ended_by_itself(&mut self.env, &mut self.hosting, &actor);
            self.hosting.leave(&mut self.env, actor);
        }
    }

    /// Handles a message that found its activation gone. The driver returns it before any message sent later.
    fn on_bounced(&mut self, epoch: ActivationEpoch, message: Arc<Message>) {
        self.hosting.bounced(message.header.call);
        self.on_passivated(message.target.clone(), epoch);
        if message.header.call.origin == self.env.me {
            self.send_own(message);
        } else {
            self.env.return_to_origin(message, None);
        }
    }

    fn on_timer(&mut self) {
        while let Some((at, due)) = self.env.timers.take_due(self.env.now) {
            let (env, hosting) = (&mut self.env, &mut self.hosting);
            match due {
                Due::Call(sequence) => self.calls.on_deadline(env, sequence, at),
                Due::Acknowledge(peer) => env.acknowledge_due(peer),
                Due::Retransmit(peer) => env.retransmit_due(peer),
                Due::Move(actor) => self.moves_out.on_deadline(env, hosting, &actor, at),
                Due::Stage(actor) => self.moves_out.stage(env, hosting, &actor),
                // Every event handles these, at its start or its end.
                Due::MovesAgain | Due::Landing => {}
                Due::Expected(actor, epoch) => {
                    let effect = hosting.give_up_grant(env, &actor, epoch);
                    self.apply(effect);
                }
                Due::Tombstone(actor) => hosting.tombstone_due(&actor, at),
            }
        }
    }
}

/// Whether a caller is this actor.
fn is_actor(caller: &Caller, actor: &ActorId) -> bool {
    matches!(caller, Caller::Actor(caller) if caller == actor)
}
