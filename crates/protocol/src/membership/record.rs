//! Member records and the roster.

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

/// Role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It hosts actors.
    Server,
    /// It only calls actors.
    Client,
    /// It supervises an embedded cluster, and owns its directory.
    Supervisor,
}

/// Self-description of a member, bound to its lease. Stored as JSON, so that an operator can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its name, unique in the cluster; a returning node may reuse its old name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its listen address.
    pub address: Option<SocketAddr>,
    /// It is draining and accepts no actors.
    #[serde(default)]
    pub draining: bool,
    /// It has certainly stopped: it reported so, or its process is known to be gone. Its lease need not be waited out.
    #[serde(default)]
    pub stopped: bool,
    /// How long it may act after a keep-alive. A takeover waits this long.
    #[serde(default)]
    pub lease_ttl: Duration,
    /// Fingerprint of the certificate it must present. `None` if members authenticate in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The oldest and the newest wire version it supports; `None` if the record does not state them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_versions: Option<(u16, u16)>,
}

impl MemberRecord {
    /// The record of a joining member.
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

    /// Its entry in a view.
    pub fn member(&self) -> Member {
        Member {
            hosts: self.role == Role::Server,
            draining: self.draining,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Decodes a record and the member's id; `None` if the entry is not a readable record.
    pub(super) fn decode(entry: &Entry) -> Option<(NodeId, Self)> {
        if !entry.key.starts_with(MEMBERS_PREFIX) {
            return None;
        }
        let record = serde_json::from_slice(&entry.value).ok()?;
        Some((NodeId(entry.created.0), record))
    }
}

/// All members, as of one revision.
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
