//! Two connected runtimes: the smallest cluster, with a directory in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use elastin_actor::ReplySender;
use elastin_runtime::{Builder, Grant, InboundMessage, Remote, Runtime, SaveDone, StateImage};
use elastin_types::{ActivationEpoch, ActorId, CallId, Message, NodeId, Outcome};
use parking_lot::Mutex;

/// Location of an actor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) epoch: ActivationEpoch,
}

/// Two nodes and their directory. One lock orders all changes of actors' locations.
pub(crate) struct Pair {
    runtimes: [OnceLock<Runtime>; 2],
    directory: Mutex<BTreeMap<ActorId, Place>>,
    replies: Mutex<BTreeMap<CallId, ReplySender>>,
}

struct Side {
    pair: Arc<Pair>,
    node: usize,
}

impl Pair {
    pub(crate) fn start(setup: impl Fn(Builder) -> Builder) -> Arc<Self> {
        let pair = Arc::new(Self {
            runtimes: [OnceLock::new(), OnceLock::new()],
            directory: Mutex::default(),
            replies: Mutex::default(),
        });
        for node in 0..2 {
            let side = Arc::new(Side {
                pair: pair.clone(),
                node,
            });
            let builder = Runtime::builder()
                .settings(super::inline_settings())
                .node(NodeId(node as u64 + 1))
                .workers(1)
                .remote(side);
            let runtime = setup(builder).build().unwrap();
            assert!(pair.runtimes[node].set(runtime).is_ok());
        }
        pair
    }

    pub(crate) fn runtime(&self, node: usize) -> &Runtime {
        self.runtimes[node].get().expect("both nodes have started")
    }

    pub(crate) fn place(&self, actor: &ActorId) -> Place {
        self.directory.lock()[actor]
    }

    /// Moves an actor to the other node; returns whether it was frozen in time.
    pub(crate) async fn move_over(&self, actor: &ActorId, wait_max: Duration) -> bool {
        let from = self.place(actor);
        let source = self.runtime(from.node);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let done = move |image| assert!(sender.send(image).is_ok(), "the mover waits for the freeze");
        source.freeze(actor, from.epoch, source.now() + wait_max, Box::new(done));
        let Ok(image) = receiver.await.expect("a freeze always completes") else {
            return false;
        };
        let to = Place {
            node: 1 - from.node,
            epoch: from.epoch.next(),
        };
        let mut directory = self.directory.lock();
        let messages = source.release(actor, from.epoch).expect("the actor is frozen");
        self.runtime(to.node)
            .activate(actor, to.epoch, Some(image), self.store_replies(messages))
            .unwrap();
        directory.insert(actor.clone(), to);
        true
    }

    /// Stores the reply senders here, as a real node would, so that replies are routed by call id.
    fn store_replies(&self, messages: Vec<InboundMessage>) -> Vec<InboundMessage> {
        let mut replies = self.replies.lock();
        let detach = |inbound: InboundMessage| {
            if let Some(reply) = inbound.reply {
                replies.insert(inbound.message.header.call, reply);
            }
            InboundMessage::from(inbound.message)
        };
        messages.into_iter().map(detach).collect()
    }

    /// Shuts down both runtimes: they and the pair refer to each other.
    pub(crate) async fn stop(&self) {
        for node in 0..2 {
            self.runtime(node).shutdown(Duration::from_secs(10)).await;
        }
    }
}

impl Remote for Side {
    fn may_activate_here(&self, _actor: &ActorId) -> Option<Grant> {
        None
    }

    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>) {
        let mut directory = self.pair.directory.lock();
        let inbound = self
            .pair
            .store_replies(vec![InboundMessage { message, reply }])
            .remove(0);
        let actor = inbound.message.target.clone();
        match directory.get(&actor) {
            Some(place) => {
                let place = *place;
                self.pair
                    .runtime(place.node)
                    .deliver(inbound, place.epoch)
                    .expect("the directory is up to date");
            }
            None => {
                let place = Place {
                    node: self.node,
                    epoch: ActivationEpoch::default(),
                };
                directory.insert(actor.clone(), place);
                let runtime = self.pair.runtime(self.node);
                runtime
                    .activate(&actor, place.epoch, None::<StateImage>, vec![inbound])
                    .unwrap();
            }
        }
    }

    fn reply(&self, call: CallId, outcome: Outcome) {
        let reply = self.pair.replies.lock().remove(&call);
        reply.expect("each call is answered once").complete(outcome);
    }

    fn save(&self, _actor: &ActorId, _epoch: ActivationEpoch, _state: Bytes, done: SaveDone) {
        done(Ok(()));
    }

    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        self.pair
            .directory
            .lock()
            .get(actor)
            .map(|place| NodeId(place.node as u64 + 1))
    }

    fn passivated(&self, actor: &ActorId, _epoch: ActivationEpoch) {
        self.pair.directory.lock().remove(actor);
    }
}
