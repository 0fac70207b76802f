//! Requested servers. Until they have joined and reported, no further ones are requested for the same reason.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, NodeId, Time};

use super::Gem;
use super::event::GemCommand;
use crate::record::record;
use crate::settings::PROMISE_PERIODS;
use crate::{Cause, Change, Decision, Outcome};

/// Maximum number of open requests.
const PROVISIONS_MAX: usize = 64;

/// The open requests for servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Provisions {
    open: BTreeMap<u64, Provision>,
    /// Servers added for reserved actors, with the actor and the time until which they are kept for it.
    added_for_reserve: BTreeMap<NodeId, (ActorId, Time)>,
}

#[derive(Clone, Debug)]
struct Provision {
    decision: Decision,
    count: u32,
    reserved: Option<ActorId>,
    until: Time,
    /// Once the provisioner has named the servers: those that have not reported yet.
    awaited: Option<BTreeSet<NodeId>>,
}

/// A request for servers.
pub(crate) struct Wanted {
    pub(crate) cause: Option<Cause>,
    pub(crate) count: u32,
    /// The actor whose reservation is the reason.
    pub(crate) reserved: Option<ActorId>,
    /// Whether they are kept for that actor; otherwise they take the actors that make room for it.
    pub(crate) keep: bool,
}

impl Provisions {
    /// Number of servers being provisioned.
    pub(crate) fn pending(&self) -> u32 {
        let awaited = |provision: &Provision| match &provision.awaited {
            Some(nodes) => u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            None => provision.count,
        };
        self.open.values().map(awaited).sum()
    }

    /// Number of servers being provisioned that are not members yet.
    pub(crate) fn unnamed(&self) -> u32 {
        let unnamed = self.open.values().filter(|provision| provision.awaited.is_none());
        unnamed.map(|provision| provision.count).sum()
    }

    /// Whether a server for this actor is being provisioned.
    pub(crate) fn is_awaited_by(&self, actor: &ActorId) -> bool {
        self.open
            .values()
            .any(|provision| provision.reserved.as_ref() == Some(actor))
    }

    /// The actors for which servers are being provisioned.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = &ActorId> {
        self.open.values().filter_map(|provision| provision.reserved.as_ref())
    }

    /// Whether servers that are not meant for a single actor are being provisioned.
    pub(crate) fn has_common(&self) -> bool {
        self.open.values().any(|provision| provision.reserved.is_none())
    }

    /// The actor that a server was added for and is still kept for.
    pub(crate) fn kept_for(&self, node: NodeId, now: Time) -> Option<ActorId> {
        let (actor, until) = self.added_for_reserve.get(&node)?;
        (*until > now).then(|| actor.clone())
    }

    /// Forgets a dead server.
    pub(crate) fn forget_dead(&mut self, node: NodeId) {
        self.has_reported(node);
        self.added_for_reserve.remove(&node);
    }

    /// Records a server's first report: it is no longer pending.
    pub(crate) fn has_reported(&mut self, node: NodeId) {
        for provision in self.open.values_mut() {
            if let Some(nodes) = &mut provision.awaited {
                nodes.remove(&node);
            }
        }
        self.open
            .retain(|_, provision| provision.awaited.as_ref().is_none_or(|nodes| !nodes.is_empty()));
    }

    pub(crate) fn was_added_for_reserve(&self, node: NodeId) -> bool {
        self.added_for_reserve.contains_key(&node)
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.open.values().map(|provision| provision.until).min()
    }
}

impl Gem {
    /// Requests servers; returns whether the request was sent.
    pub(super) fn add_servers(&mut self, wanted: Wanted, out: &mut Vec<GemCommand>) -> bool {
        if self.provisions.open.len() >= PROVISIONS_MAX {
            return false;
        }
        let Wanted {
            cause,
            count,
            reserved,
            keep,
        } = wanted;
        let change = Change::AddServers {
            count,
            reserved: reserved.clone(),
        };
        let reserved = reserved.filter(|_| keep);
        let decision = self.context.decision(cause, change, Vec::new());
        record(decision.clone(), Outcome::Started, out);
        let request = self.context.number();
        out.push(GemCommand::AddServers {
            request,
            count,
            for_reserve: reserved.is_some(),
        });
        let provision = Provision {
            decision,
            count,
            reserved,
            until: self.context.now + self.context.settings.provision_limit,
            awaited: None,
        };
        self.provisions.open.insert(request, provision);
        true
    }

    /// Handles the provisioner's answer.
    pub(super) fn end_provision(
        &mut self,
        request: u64,
        result: Result<Vec<NodeId>, String>,
        out: &mut Vec<GemCommand>,
    ) {
        let Some(mut provision) = self.provisions.open.remove(&request) else {
            return;
        };
        let decision = provision.decision.clone();
        match result {
            Ok(nodes) => {
                let until = self.context.after_periods(PROMISE_PERIODS);
                if let Some(actor) = &provision.reserved {
                    let kept = nodes.iter().map(|node| (*node, (actor.clone(), until)));
                    self.provisions.added_for_reserve.extend(kept);
                }
                let reported = |node: &NodeId| self.view.servers.contains_key(node);
                let awaited: BTreeSet<NodeId> = nodes.into_iter().filter(|node| !reported(node)).collect();
                if !awaited.is_empty() {
                    provision.until = until;
                    provision.awaited = Some(awaited);
                    self.provisions.open.insert(request, provision);
                }
                record(decision, Outcome::Done, out);
            }
            Err(reason) => record(decision, Outcome::Failed(reason), out),
        }
    }

    /// Drops requests whose servers did not arrive in time; they are requested again if still needed.
    pub(super) fn expire_provisions(&mut self, out: &mut Vec<GemCommand>) {
        let is_late = |_: &u64, provision: &mut Provision| provision.until <= self.context.now;
        for (_, provision) in self.provisions.open.extract_if(.., is_late) {
            // Once the provisioner has delivered, servers that never report are not its failure.
            if provision.awaited.is_none() {
                let why = "they did not come in time".to_owned();
                record(provision.decision, Outcome::Failed(why), out);
            }
        }
    }
}
