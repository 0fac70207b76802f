//! The state that a node keeps of an actor outside its runtime: the entry of the directory, with its location, and that
//! of the host, with the epoch of its activation.

use std::sync::Arc;

use bytes::Bytes;
use elastin_protocol::{Command, Event, Limits, Member, Node, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, CallId, Caller, Header, Message, Method, NodeId, SlotEpoch, Time};

const ME: NodeId = NodeId(1);

/// A node that is alone in its cluster: it owns the whole directory and hosts all actors.
pub struct Lone {
    node: Node,
    calls: u64,
}

impl Lone {
    pub fn new() -> Self {
        let node = Node::new(NodeConfig {
            me: ME,
            hosts: true,
            limits: Limits::default(),
        });
        let mut lone = Self { node, calls: 0 };
        lone.handle_all(Event::MayActUntil(Time(u64::MAX)));
        lone.handle_all(Event::View(View {
            revision: 1,
            members: [(ME, Member::SERVER)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
                .into(),
            slots: SlotTable::owned_by(ME, SlotEpoch(1)),
        }));
        lone
    }

    /// The number of active actors.
    pub fn active(&self) -> u64 {
        self.node.active().count() as u64
    }

    /// Calls an actor for the first time: it is placed, activated, runs and answers.
    pub fn first_call(&mut self, target: ActorId) {
        self.calls += 1;
        let call = CallId {
            origin: ME,
            sequence: self.calls,
        };
        let message = Message {
            target,
            header: Header::of_call(call, Caller::Client(ME)),
            method: Method::of("add"),
            body: Bytes::new(),
        };
        self.handle_all(Event::Send {
            message: Arc::new(message),
        });
    }

    /// Handles an event and executes the resulting commands until none is left.
    fn handle_all(&mut self, event: Event) {
        let mut commands = Vec::new();
        self.node.handle(Time::ZERO, event, &mut commands);
        for command in commands {
            match command {
                Command::NeedPlacement { actor, .. } => {
                    let node = Some(ME);
                    self.handle_all(Event::Placed { actor, node });
                }
                Command::Activate { actor, epoch, .. } => {
                    let result = Ok(());
                    self.handle_all(Event::Activated { actor, epoch, result });
                }
                Command::Deliver { message, .. } => {
                    let (call, outcome) = (message.header.call, Ok(Bytes::new()));
                    self.handle_all(Event::Replied { call, outcome });
                }
                Command::Open { .. } => {}
                Command::Complete { outcome, .. } => assert!(outcome.is_ok(), "the call failed: {outcome:?}"),
                other => unreachable!("a lone node does not issue {other:?}"),
            }
        }
    }
}
