//! What members send of themselves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use elastin_types::NodeId;
use serde::{Deserialize, Serialize};

use crate::Member;
use crate::store::Entry;

/// Everything about the membership is under this prefix.
pub const CLUSTER_PREFIX: &str = "cluster/";
/// Under it, the records of members.
const MEMBERS_PREFIX: &str = "cluster/members/";

/// What a member is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It hosts actors.
    Server,
    /// It only calls actors.
    Client,
    /// It supervises an embedded cluster, and owns its directory.
    Supervisor,
}

/// What a member says of itself, bound to its lease. JSON, so that an operator can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its name, unique in the cluster; a node that comes back may have its old name.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Where it can be dialled.
    pub address: Option<SocketAddr>,
    /// It is being emptied and takes no actors.
    #[serde(default)]
    pub draining: bool,
    /// It has certainly stopped, by its own word or because its process is known to be gone: nobody need wait for its
    /// lease.
    #[serde(default)]
    pub stopped: bool,
    /// How long it may act after a sign of life: whoever takes over waits for so long.
    #[serde(default)]
    pub lease_ttl: Duration,
    /// What stands for the certificate that it shows: whoever shows another is not this member. `None` if members know each
    /// other in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The versions of the wire that it speaks, from the oldest to the newest; `None` if it does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_versions: Option<(u16, u16)>,
}

impl MemberRecord {
    /// A member that has just come.
    pub fn new(name: impl Into<String>, role: Role, address: Option<SocketAddr>) -> Self {
        Self {
            name: name.into(),
            role,
            address,
            draining: false,
            stopped: false,
            lease_ttl: Duration::ZERO,
            certificate: None,
            wire_versions: None,
        }
    }

    /// The key of the record of a member of this name.
    pub fn key(name: &str) -> String {
        format!("{MEMBERS_PREFIX}{name}")
    }

    /// What it takes part in.
    pub fn member(&self) -> Member {
        Member {
            hosts: self.role == Role::Server,
            draining: self.draining,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// The record in an entry, and the id of the member; nothing if it is not a record that this software can read.
    pub(super) fn decode(entry: &Entry) -> Option<(NodeId, Self)> {
        if !entry.key.starts_with(MEMBERS_PREFIX) {
            return None;
        }
        let record = serde_json::from_slice(&entry.value).ok()?;
        Some((NodeId(entry.created.0), record))
    }
}

/// Everybody who is there, as of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The members by id.
    pub members: BTreeMap<NodeId, MemberRecord>,
}

impl Roster {
    /// The member of this name.
    pub fn named(&self, name: &str) -> Option<NodeId> {
        self.members
            .iter()
            .find(|(_, record)| record.name == name)
            .map(|(node, _)| *node)
    }

    pub(super) fn without_stopped(mut self) -> Self {
        self.members.retain(|_, record| !record.stopped);
        self
    }

    /// The supervisor, if there is one.
    pub fn supervisor(&self) -> Option<NodeId> {
        self.members
            .iter()
            .find(|(_, record)| record.role == Role::Supervisor)
            .map(|(node, _)| *node)
    }
}
