//! A model of a node's peers, runtime and cluster for the fuzz target.

mod tame;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::{Command, Event, Frame, Limits, Member, MoveId, Node, NodeConfig, PlannedMove, SlotTable, View};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, Caller, ChainId, Header, Message, Method, NodeId,
    NotDelivered, Request, SlotEpoch, TenantId, Time,
};

const ME: NodeId = NodeId(2);
const SERVER: NodeId = NodeId(1);
const OTHER_SERVER: NodeId = NodeId(5);
const CLIENT: NodeId = NodeId(7);
const TOO_NEW: NodeId = NodeId(300);
const PEERS: [NodeId; 4] = [SERVER, OTHER_SERVER, CLIENT, TOO_NEW];
const FIRST_REVISION: u64 = 10;

/// One of a few actors, so that frames often concern existing ones.
fn actor(key: u8) -> ActorId {
    ActorId::new(ActorType::of("Folder"), u64::from(key % 4))
}

pub(crate) struct World {
    node: Node,
    now: Time,
    commands: Vec<Command>,
    /// Commands that the runtime and placement have not answered yet.
    unanswered: VecDeque<Command>,
    /// The mailboxes of activations.
    mailboxes: BTreeMap<(ActorId, ActivationEpoch), Vec<Arc<Message>>>,
    /// The number of frames received from each peer.
    received: BTreeMap<NodeId, u64>,
    view: View,
    sequence: u64,
    moves: u64,
}

impl World {
    /// A node in a small cluster; the choice decides which node owns the directory.
    pub(crate) fn start(choice: u8) -> Self {
        let servers = [SERVER, ME, OTHER_SERVER].map(|node| (node, Member::SERVER));
        let members: BTreeMap<NodeId, Member> = servers.into_iter().chain([(CLIENT, Member::CLIENT)]).collect();
        let epoch = SlotEpoch(3);
        // Owning slots slows a run down, so most runs do without.
        let slots = match choice % 8 {
            0..5 => SlotTable::owned_by(SERVER, epoch),
            5 => SlotTable::owned_by(ME, epoch),
            _ => SlotTable::shared_by(&[SERVER, ME, OTHER_SERVER], epoch),
        };
        let view = View {
            revision: FIRST_REVISION,
            members: Arc::new(members),
            slots,
        };
        let limits = Limits {
            held_per_actor: 4,
            unacknowledged_per_peer: 64,
            moves_out: 3,
            moves_in: 3,
            requests_per_actor: 3,
            request_bytes: 64,
            routes: 3,
            ..Limits::default()
        };
        let mut world = Self {
            node: Node::new(NodeConfig {
                me: ME,
                hosts: true,
                limits,
            }),
            now: Time::ZERO,
            commands: Vec::new(),
            unanswered: VecDeque::new(),
            mailboxes: BTreeMap::new(),
            received: BTreeMap::new(),
            view: view.clone(),
            sequence: 0,
            moves: 0,
        };
        world.handle(Event::MayActUntil(Time(u64::MAX)));
        if choice < 200 {
            world.handle(Event::View(view));
        }
        world
    }

    /// Feeds an event to the node and executes its commands. A message without an activation bounces immediately.
    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.node.handle(self.now, event, &mut self.commands);
            for command in std::mem::take(&mut self.commands) {
                match command {
                    Command::Deliver { epoch, message } => {
                        match self.mailboxes.get_mut(&(message.target.clone(), epoch)) {
                            Some(mailbox) => mailbox.push(message),
                            None => events.push_back(Event::Bounced { epoch, message }),
                        }
                    }
                    Command::Release { actor, epoch } => {
                        let queue = self.mailboxes.remove(&(actor.clone(), epoch)).unwrap_or_default();
                        events.push_back(Event::Released { actor, epoch, queue });
                    }
                    Command::Activate { .. } | Command::Freeze { .. } | Command::NeedPlacement { .. } => {
                        self.unanswered.push_back(command);
                    }
                    Command::Transmit { .. }
                    | Command::Complete { .. }
                    | Command::Open { .. }
                    | Command::Resume { .. }
                    | Command::MoveEnded { .. }
                    | Command::Refused { .. } => {}
                }
            }
        }
    }

    /// Receives a frame from a peer; with `next`, it gets the expected number.
    pub(crate) fn receives(&mut self, peer: u8, mut frame: Frame, next: bool) {
        let from = PEERS[usize::from(peer) % PEERS.len()];
        if let Some(body) = &mut frame.body {
            tame::body(body);
            let received = self.received.entry(from).or_default();
            if next {
                *received += 1;
                frame.number = *received;
            }
        }
        self.handle(Event::Frame { from, frame });
    }

    /// Answers a command as the runtime or placement, or ends a turn or an activation.
    pub(crate) fn runtime_answers(&mut self, choice: u8) {
        let good = choice % 4 != 3;
        match self.unanswered.pop_front() {
            Some(Command::Activate { actor, epoch, .. }) => {
                let result = if good {
                    self.mailboxes.insert((actor.clone(), epoch), Vec::new());
                    Ok(())
                } else {
                    Err(CallError::NotDelivered(NotDelivered::StateUnavailable))
                };
                self.handle(Event::Activated { actor, epoch, result });
            }
            Some(Command::Freeze { actor, epoch, .. }) => {
                let here = self.mailboxes.contains_key(&(actor.clone(), epoch));
                let image = (good && here).then(|| Bytes::from(vec![0; 70_000 * usize::from(choice / 128)]));
                self.handle(Event::Frozen { actor, epoch, image });
            }
            Some(Command::NeedPlacement { actor, .. }) => {
                let places = [ME, SERVER, OTHER_SERVER, TOO_NEW];
                let node = good.then(|| places[usize::from(choice / 4) % places.len()]);
                self.handle(Event::Placed { actor, node });
            }
            Some(_) => unreachable!("no other command is answered"),
            None => self.turn_ends(choice),
        }
    }

    fn turn_ends(&mut self, choice: u8) {
        let Some(key) = self.mailboxes.keys().nth(usize::from(choice) % 4).cloned() else {
            return;
        };
        let mailbox = self.mailboxes.get_mut(&key).expect("the key was found in the map");
        if mailbox.is_empty() {
            self.mailboxes.remove(&key);
            let (actor, epoch) = key;
            return self.handle(Event::Passivated { actor, epoch });
        }
        let message = mailbox.remove(0);
        if !message.header.one_way {
            let call = message.header.call;
            let outcome = match choice % 2 {
                0 => Ok(Bytes::from(vec![0; usize::from(choice)])),
                _ => Err(CallError::DeadlineExceeded),
            };
            self.handle(Event::Replied { call, outcome });
        }
    }

    /// Calls or tells an actor from this node, or makes a request.
    pub(crate) fn calls(&mut self, key: u8, choice: u8) {
        self.sequence += 1;
        let call = CallId {
            origin: ME,
            sequence: self.sequence,
        };
        let request = (choice % 4 == 3).then(|| self.node.begin_request()).flatten();
        let header = Header {
            call,
            chain: ChainId(call),
            caller: match choice / 4 % 2 {
                0 => Caller::Client(ME),
                _ => Caller::Actor(actor(choice / 8)),
            },
            tenant: TenantId::default(),
            deadline: (choice > 127).then(|| self.now + Duration::from_millis(u64::from(choice))),
            one_way: choice % 4 == 1,
            expected_cost: None,
            trace: None,
            source_time_ms: 0,
            context: None,
            request: request.map(|number| Request {
                number,
                settled_below: 0,
            }),
        };
        let message = Message {
            target: actor(key),
            header,
            method: Method::of("open"),
            body: Bytes::new(),
        };
        let message = Arc::new(message);
        self.handle(Event::Send { message });
        match (choice % 4, request) {
            (2, _) => self.handle(Event::GiveUp { call }),
            (_, Some(request)) if choice > 64 => self.handle(Event::Settle { request }),
            _ => {}
        }
    }

    /// Adds or removes a member, and rebalances the slots.
    pub(crate) fn view_changes(&mut self, choice: u8) {
        let mut members = BTreeMap::clone(&self.view.members);
        let peer = PEERS[usize::from(choice) % PEERS.len()];
        if members.remove(&peer).is_none() && peer == TOO_NEW {
            members.insert(TOO_NEW, Member::SERVER);
            self.view.revision = self.view.revision.max(TOO_NEW.0);
        }
        let draining = choice > 200;
        members.insert(ME, Member { hosts: true, draining });
        let hosts = members.iter().filter(|(_, member)| member.hosts && !member.draining);
        let owners: Vec<NodeId> = hosts.map(|(node, _)| *node).collect();
        let slots = self.view.slots.rebalanced(&owners);
        self.view = View {
            revision: self.view.revision + 1,
            members: Arc::new(members),
            slots: slots.unwrap_or_else(|| self.view.slots.clone()),
        };
        self.handle(Event::View(self.view.clone()));
    }

    /// Requests moves of actors, as a group or not.
    pub(crate) fn moves(&mut self, key: u8, choice: u8) {
        let to = [SERVER, OTHER_SERVER, CLIENT, ME, TOO_NEW][usize::from(choice) % 5];
        let mut planned = |key: u8| {
            self.moves += 1;
            PlannedMove {
                id: MoveId(self.moves),
                actor: actor(key),
                to,
            }
        };
        let moves = vec![planned(key), planned(key / 4)];
        let event = match choice / 5 % 3 {
            0 => Event::Moves(moves),
            1 => Event::MoveTogether(moves),
            _ => {
                let PlannedMove { id, actor, to } = moves[0].clone();
                Event::Move { id, actor, to }
            }
        };
        self.handle(event);
    }

    pub(crate) fn time_passes(&mut self, choice: u8) {
        self.now = self.now + Duration::from_millis(u64::from(choice).pow(2));
        self.handle(Event::Timer);
    }

    pub(crate) fn link_changes(&mut self, choice: u8) {
        let peer = PEERS[usize::from(choice) % PEERS.len()];
        self.handle(match choice / 4 % 2 {
            0 => Event::LinkUp { peer },
            _ => Event::LinkDown { peer },
        });
    }

    pub(crate) fn parts(&mut self) {
        self.handle(Event::Leave);
    }
}
