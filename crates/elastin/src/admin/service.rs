//! Serves admin requests at a node: finds the node that must act, forwards the request, and returns the answer.

use std::collections::HashMap;

use elastin_cluster::{Class, NodeDriver, Roster};
use elastin_protocol::MoveId;
use elastin_types::{ActorId, NodeId};
use tokio::sync::oneshot;

use super::{AdminError, AdminFrame, AdminReply, AdminRequest, AdminResult};
use crate::wire;

/// The recipient of a request's outcome.
pub(crate) enum Requester {
    /// Another node, with its id of the request.
    Remote { node: NodeId, id: u64 },
    /// A task of this process.
    Local(oneshot::Sender<AdminResult>),
}

/// A request that was forwarded to another node.
struct Forwarded {
    to: NodeId,
    requester: Requester,
}

/// The forwarded requests that are in flight.
#[derive(Default)]
pub(crate) struct AdminService {
    forwarded: HashMap<u64, Forwarded>,
    last_id: u64,
}

/// A request that this node must carry out itself.
pub(crate) enum AdminTask {
    Move {
        actor: ActorId,
        to: NodeId,
        requester: Requester,
    },
    Drain {
        requester: Requester,
    },
    Status {
        requester: Requester,
    },
}

impl AdminService {
    /// Handles a frame of class admin. Returns the task for this node, if there is one.
    pub(crate) fn handle_frame(
        &mut self,
        driver: &NodeDriver,
        roster: &Roster,
        from: NodeId,
        payload: &[u8],
    ) -> Option<AdminTask> {
        match wire::decode(from, payload)? {
            AdminFrame::Ask { id, request } => {
                self.submit(driver, roster, Requester::Remote { node: from, id }, request)
            }
            AdminFrame::MoveHere { id, actor, to } => {
                let requester = Requester::Remote { node: from, id };
                Some(AdminTask::Move { actor, to, requester })
            }
            AdminFrame::Answer { id, result } => {
                if let Some(Forwarded { requester, .. }) = self.forwarded.remove(&id) {
                    answer(driver, requester, result);
                }
                None
            }
        }
    }

    /// Serves a request. Returns the task for this node, if there is one.
    pub(crate) fn submit(
        &mut self,
        driver: &NodeDriver,
        roster: &Roster,
        requester: Requester,
        request: AdminRequest,
    ) -> Option<AdminTask> {
        let (actor, to) = match request {
            AdminRequest::Drain => return Some(AdminTask::Drain { requester }),
            AdminRequest::Status => return Some(AdminTask::Status { requester }),
            AdminRequest::Move { actor, to } => (actor, to),
        };
        // The directory drops the actors of a dead server lazily, on their next call.
        let host = driver.host_of(&actor).filter(|host| roster.members.contains_key(host));
        match host {
            None if !driver.answers_for(&actor) => answer(driver, requester, Err(AdminError::WrongNode)),
            None => answer(driver, requester, Err(AdminError::NotActive)),
            Some(host) if host == driver.me() => return Some(AdminTask::Move { actor, to, requester }),
            Some(host) => {
                let id = self.track(host, requester);
                send(driver, host, &AdminFrame::MoveHere { id, actor, to });
            }
        }
        None
    }

    /// Sends a request to another node.
    pub(crate) fn forward(&mut self, driver: &NodeDriver, to: NodeId, requester: Requester, request: AdminRequest) {
        let id = self.track(to, requester);
        send(driver, to, &AdminFrame::Ask { id, request });
    }

    fn track(&mut self, to: NodeId, requester: Requester) -> u64 {
        self.last_id += 1;
        self.forwarded.insert(self.last_id, Forwarded { to, requester });
        self.last_id
    }

    /// Fails the requests that were forwarded to nodes which are no longer members: they never answer.
    pub(crate) fn roster_changed(&mut self, driver: &NodeDriver, roster: &Roster) {
        let lost = self
            .forwarded
            .extract_if(|_, forwarded| !roster.members.contains_key(&forwarded.to));
        for (_, Forwarded { requester, .. }) in lost {
            answer(driver, requester, Err(AdminError::NoAnswer));
        }
    }
}

/// Sends the outcome of a request to its requester.
pub(crate) fn answer(driver: &NodeDriver, requester: Requester, result: AdminResult) {
    match requester {
        Requester::Remote { node, id } => send(driver, node, &AdminFrame::Answer { id, result }),
        // Fails if the requester has timed out.
        Requester::Local(answer) => drop(answer.send(result)),
    }
}

/// The admin result of a move.
pub(crate) fn move_result<T>(result: Result<T, elastin_protocol::MoveError>) -> AdminResult {
    result.map(|_| AdminReply::Done).map_err(AdminError::Move)
}

fn send(driver: &NodeDriver, to: NodeId, frame: &AdminFrame) {
    if let Err(error) = driver.send(to, Class::Admin, &wire::encode(frame)) {
        // The requester has a timeout, so nothing waits for ever.
        tracing::warn!(%to, %error, "dropped an admin frame");
    }
}

/// The moves that a node has in flight, each with its origin.
pub(crate) struct Moves<Origin> {
    in_flight: HashMap<MoveId, Origin>,
    begun: u64,
}

impl<Origin> Default for Moves<Origin> {
    fn default() -> Self {
        Self {
            in_flight: HashMap::new(),
            begun: 0,
        }
    }
}

impl<Origin> Moves<Origin> {
    pub(crate) fn begin(&mut self, origin: Origin) -> MoveId {
        self.begun += 1;
        let id = MoveId(self.begun);
        self.in_flight.insert(id, origin);
        id
    }

    pub(crate) fn end(&mut self, id: MoveId) -> Option<Origin> {
        self.in_flight.remove(&id)
    }
}
