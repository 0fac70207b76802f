//! Where a node serves operators: finds out who has to do what, passes it on, and brings the answer back.

use std::collections::HashMap;

use elastin_cluster::{Class, NodeDriver, Roster};
use elastin_protocol::MoveId;
use elastin_types::{ActorId, NodeId};
use tokio::sync::oneshot;

use super::{AdminError, AdminFrame, AdminReply, AdminRequest, AdminResult};
use crate::wire;

/// Who wants to know how a request ended.
pub(crate) enum Asker {
    /// Somebody on another node, by the number of the request there.
    Remote { node: NodeId, request: u64 },
    /// Somebody in this process.
    Local(oneshot::Sender<AdminResult>),
}

/// A request that another node was asked to carry out.
struct PassedOn {
    to: NodeId,
    asker: Asker,
}

/// The requests that are under way at this node.
#[derive(Default)]
pub(crate) struct AdminService {
    passed_on: HashMap<u64, PassedOn>,
    numbers: u64,
}

/// What the node itself has to do for an operator.
pub(crate) enum AdminTask {
    Move { actor: ActorId, to: NodeId, asker: Asker },
    Drain { asker: Asker },
    Status { asker: Asker },
}

impl AdminService {
    /// A frame of class admin came. Returns what this node has to do itself.
    pub(crate) fn hear(
        &mut self,
        peer: &NodeDriver,
        roster: &Roster,
        from: NodeId,
        payload: &[u8],
    ) -> Option<AdminTask> {
        match wire::decode(from, payload)? {
            AdminFrame::Ask { request, what } => self.ask(peer, roster, Asker::Remote { node: from, request }, what),
            AdminFrame::MoveHere { request, actor, to } => {
                let asker = Asker::Remote { node: from, request };
                Some(AdminTask::Move { actor, to, asker })
            }
            AdminFrame::Answer { request, result } => {
                if let Some(PassedOn { asker, .. }) = self.passed_on.remove(&request) {
                    answer(peer, asker, result);
                }
                None
            }
        }
    }

    /// Somebody asks. Returns what this node has to do itself.
    pub(crate) fn ask(
        &mut self,
        peer: &NodeDriver,
        roster: &Roster,
        asker: Asker,
        what: AdminRequest,
    ) -> Option<AdminTask> {
        let (actor, to) = match what {
            AdminRequest::Drain => return Some(AdminTask::Drain { asker }),
            AdminRequest::Status => return Some(AdminTask::Status { asker }),
            AdminRequest::Move { actor, to } => (actor, to),
        };
        // The directory forgets the actors of a dead server only when they are called again.
        let host = peer.host_of(&actor).filter(|host| roster.members.contains_key(host));
        match host {
            None if !peer.answers_for(&actor) => answer(peer, asker, Err(AdminError::WrongNode)),
            None => answer(peer, asker, Err(AdminError::NotActive)),
            Some(host) if host == peer.me() => return Some(AdminTask::Move { actor, to, asker }),
            Some(host) => {
                let request = self.pass_on(host, asker);
                send(peer, host, &AdminFrame::MoveHere { request, actor, to });
            }
        }
        None
    }

    /// Asks another node.
    pub(crate) fn ask_of(&mut self, peer: &NodeDriver, to: NodeId, asker: Asker, what: AdminRequest) {
        let request = self.pass_on(to, asker);
        send(peer, to, &AdminFrame::Ask { request, what });
    }

    fn pass_on(&mut self, to: NodeId, asker: Asker) -> u64 {
        self.numbers += 1;
        self.passed_on.insert(self.numbers, PassedOn { to, asker });
        self.numbers
    }

    /// The membership changed. Who is gone answers no more: whoever waits for it hears that, and need not wait in vain.
    pub(crate) fn meet(&mut self, peer: &NodeDriver, roster: &Roster) {
        let lost = self
            .passed_on
            .extract_if(|_, passed| !roster.members.contains_key(&passed.to));
        for (_, PassedOn { asker, .. }) in lost {
            answer(peer, asker, Err(AdminError::NoAnswer));
        }
    }
}

/// Tells whoever asked how it ended.
pub(crate) fn answer(peer: &NodeDriver, asker: Asker, result: AdminResult) {
    match asker {
        Asker::Remote { node, request } => send(peer, node, &AdminFrame::Answer { request, result }),
        // Whoever asked may have lost retry_limit.
        Asker::Local(answer) => drop(answer.send(result)),
    }
}

/// What the end of a move means to whoever asked for it.
pub(crate) fn moved<T>(result: Result<T, elastin_protocol::MoveError>) -> AdminResult {
    result.map(|_| AdminReply::Done).map_err(AdminError::Move)
}

fn send(peer: &NodeDriver, to: NodeId, frame: &AdminFrame) {
    if let Err(error) = peer.send(to, Class::Admin, &wire::encode(frame)) {
        // Whoever asked has a time limit.
        tracing::warn!(%to, %error, "an admin frame was dropped");
    }
}

/// Moves under way at a node, and who asked for each.
pub(crate) struct Moves<Who> {
    under_way: HashMap<MoveId, Who>,
    begun: u64,
}

impl<Who> Default for Moves<Who> {
    fn default() -> Self {
        Self {
            under_way: HashMap::new(),
            begun: 0,
        }
    }
}

impl<Who> Moves<Who> {
    pub(crate) fn begin(&mut self, who: Who) -> MoveId {
        self.begun += 1;
        let id = MoveId(self.begun);
        self.under_way.insert(id, who);
        id
    }

    pub(crate) fn end(&mut self, id: MoveId) -> Option<Who> {
        self.under_way.remove(&id)
    }
}
