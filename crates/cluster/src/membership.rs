//! A node's membership, kept in the coordination service: a lease, a record under it, and a watch on everybody's.
//!
//! ```text
//!  members/NAME   who is there, bound to its lease; the revision that created it is the node's id
//!  slots          who owns the directory
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::{
    Change, Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Entry, KeyState, LeaseId,
    RANGE_LIMIT_MAX, Revision, WatchBatch,
};
use elastin_protocol::{Lease, LeaseCommand, Member, SlotTable, View};
use elastin_stores::CoordinationExt;
use elastin_types::{NodeId, SlotEpoch};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::Peer;

const MEMBER_PREFIX: &str = "members/";
const SLOTS_KEY: &str = "slots";

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

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its name, unique in the cluster; a node that comes back may have its old name.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Where it can be dialled.
    pub address: Option<SocketAddr>,
    /// It is being emptied and takes no actors.
    pub draining: bool,
}

impl MemberRecord {
    /// The key of the record of a member of this name.
    pub fn key(name: &str) -> String {
        format!("{MEMBER_PREFIX}{name}")
    }
}

/// Everybody in the cluster, as of one revision.
#[derive(Clone, Debug, Default)]
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

    /// The supervisor, if there is one.
    pub fn supervisor(&self) -> Option<NodeId> {
        self.members
            .iter()
            .find(|(_, record)| record.role == Role::Supervisor)
            .map(|(node, _)| *node)
    }
}

/// Why a node could not join. It is no member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A member of this name is there already, or its lease has not run out yet. Try again after that, or take another
    /// name.
    #[error("there is already a member called `{0}`")]
    NameTaken(String),
    /// Coordination failed.
    #[error("coordination failed: {0}")]
    Coordination(#[from] CoordinationError),
}

/// What a member hears.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The cluster changed.
    Roster(Roster),
    /// This member is one no longer: its lease ran out. It must end; a new life needs a new id.
    Evicted,
}

/// A node that has joined, and does not take part yet.
pub struct Membership {
    coordination: Arc<dyn Coordination>,
    me: NodeId,
    lease: LeaseId,
    ttl: Duration,
    granted: Instant,
}

impl Membership {
    /// Joins the cluster: from now on the node must show signs of life, which [`Membership::attend`] does.
    pub async fn join(
        coordination: Arc<dyn Coordination>,
        record: &MemberRecord,
        ttl: Duration,
    ) -> Result<Membership, JoinError> {
        let granted = Instant::now();
        let (lease, ttl) = match coordination.call(CoordinationRequest::Grant { ttl }).await? {
            CoordinationReply::Granted { lease, ttl } => (lease, ttl),
            other => unreachable!("a grant is answered by Granted, not {other:?}"),
        };
        let key = MemberRecord::key(&record.name);
        let commit = Commit::put_bound(&key, encode(record), lease).when(&key, KeyState::Absent);
        match coordination.call(commit).await {
            Ok(CoordinationReply::Committed { revision }) => Ok(Membership {
                coordination,
                me: NodeId(revision.0),
                lease,
                ttl,
                granted,
            }),
            Ok(other) => unreachable!("a commit is answered by Committed, not {other:?}"),
            Err(CoordinationError::ConditionFailed { .. }) => Err(JoinError::NameTaken(record.name.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// This life of the node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The lease that the membership lives by.
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Makes this node the owner of the whole directory.
    pub async fn own_directory(&self) -> Result<(), CoordinationError> {
        // The node's id is a revision, so a later owner's epoch is higher.
        let epoch = SlotEpoch(u32::try_from(self.me.0).expect("a directory changes hands fewer than 2³² times"));
        let table = SlotTable::owned_by(self.me, epoch);
        let bytes = postcard::to_stdvec(&table).expect("a table is plain data");
        self.coordination.call(Commit::put(SLOTS_KEY, bytes)).await.map(drop)
    }

    /// Takes part: keeps the lease alive, fences `peer` when it may have run out, and feeds it views, until the process ends
    /// or the membership does.
    pub fn attend(self, peer: Peer) -> mpsc::UnboundedReceiver<Heard> {
        let (heard, hears) = mpsc::unbounded_channel();
        tokio::spawn(keep_alive(
            Arc::clone(&self.coordination),
            (self.lease, self.ttl, self.granted),
            peer.clone(),
            heard.clone(),
        ));
        tokio::spawn(follow(Arc::clone(&self.coordination), self.me, peer, heard));
        hears
    }
}

/// Changes what a member's record says of being emptied.
pub async fn set_draining(
    coordination: &dyn Coordination,
    name: &str,
    draining: bool,
) -> Result<(), CoordinationError> {
    let key = MemberRecord::key(name);
    loop {
        let entry = match coordination.call(CoordinationRequest::Get { key: key.clone() }).await? {
            CoordinationReply::Got { entry, .. } => entry,
            other => unreachable!("a get is answered by Got, not {other:?}"),
        };
        let Some((entry, mut record)) = entry.and_then(|entry| decode(&entry).map(|record| (entry, record))) else {
            return Ok(());
        };
        record.draining = draining;
        let mut commit = Commit::default().when(&key, KeyState::ModifiedAt(entry.modified));
        commit = commit.and_put(&key, encode(&record), entry.lease);
        match coordination.call(commit).await {
            // Somebody else changed it meanwhile: look again.
            Err(CoordinationError::ConditionFailed { .. }) => {}
            other => return other.map(drop),
        }
    }
}

fn encode(record: &MemberRecord) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record is plain data")
}

fn decode(entry: &Entry) -> Option<MemberRecord> {
    serde_json::from_slice(&entry.value)
        .inspect_err(|error| tracing::warn!(key = entry.key, %error, "a member's record could not be read"))
        .ok()
}

/// Carries out what the node's lease wants done, until it ends or nobody listens any more.
async fn keep_alive(
    coordination: Arc<dyn Coordination>,
    (id, ttl, asked): (LeaseId, Duration, Instant),
    peer: Peer,
    heard: mpsc::UnboundedSender<Heard>,
) {
    let mut lease = Lease::new(peer.now() - asked.elapsed(), ttl);
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut commands = Vec::new();
    while !heard.is_closed() {
        for command in commands.drain(..) {
            match command {
                LeaseCommand::KeepAlive(number) => {
                    let answers = answers.clone();
                    let done = move |answer| drop(answers.send((number, answer)));
                    coordination.submit(CoordinationRequest::KeepAlive { lease: id }, Box::new(done));
                }
                LeaseCommand::Fence => {
                    tracing::warn!("the lease may have run out: nothing leaves this node until it is good again");
                    peer.fence(true);
                }
                LeaseCommand::Unfence => peer.fence(false),
                LeaseCommand::End => {
                    peer.fence(true);
                    let _ = heard.send(Heard::Evicted);
                    return;
                }
            }
        }
        let left = lease.next_timer().map_or(ttl, |at| at.since(peer.now()));
        tokio::select! {
            () = sleep(left) => lease.tick(peer.now(), &mut commands),
            Some((number, answer)) = answered.recv() => match answer {
                Ok(CoordinationReply::KeptAlive { ttl }) => {
                    lease.answered(peer.now(), number, Some(ttl), &mut commands);
                }
                Ok(other) => unreachable!("a sign of life is answered by KeptAlive, not {other:?}"),
                Err(CoordinationError::LeaseUnknown) => lease.answered(peer.now(), number, None, &mut commands),
                Err(error) => tracing::warn!(%error, "a sign of life was not answered"),
            },
        }
    }
}

/// Follows the membership: reads all of it, then every change; anew when changes were missed.
async fn follow(coordination: Arc<dyn Coordination>, me: NodeId, peer: Peer, heard: mpsc::UnboundedSender<Heard>) {
    while !heard.is_closed() {
        if let Err(error) = follow_from_now(&*coordination, me, &peer, &heard).await {
            tracing::warn!(%error, "the membership is read again");
            tokio::time::sleep(FOLLOW_AGAIN_AFTER).await;
        }
    }
}

/// How long to wait before the membership is read again after coordination failed.
const FOLLOW_AGAIN_AFTER: Duration = Duration::from_millis(100);

async fn follow_from_now(
    coordination: &dyn Coordination,
    me: NodeId,
    peer: &Peer,
    heard: &mpsc::UnboundedSender<Heard>,
) -> Result<(), CoordinationError> {
    let (mut entries, revision) = read_all(coordination).await?;
    enter(&entries, revision, me, peer, heard);
    let (batches, mut changes) = mpsc::unbounded_channel();
    let _watch = coordination.watch(
        String::new(),
        revision.next(),
        Box::new(move |batch| {
            let _ = batches.send(batch);
        }),
    );
    while let Some(batch) = changes.recv().await {
        let WatchBatch { changes, revision } = batch?;
        let mut relevant = false;
        for change in changes {
            relevant |= change.key() == SLOTS_KEY || change.key().starts_with(MEMBER_PREFIX);
            match change {
                Change::Put(entry) => drop(entries.insert(entry.key.clone(), entry)),
                Change::Deleted { key, .. } => drop(entries.remove(&key)),
            }
        }
        if relevant {
            enter(&entries, revision, me, peer, heard);
        }
    }
    Ok(())
}

async fn read_all(coordination: &dyn Coordination) -> Result<(BTreeMap<String, Entry>, Revision), CoordinationError> {
    let mut all = BTreeMap::new();
    loop {
        let after = all.keys().next_back().cloned();
        let range = CoordinationRequest::Range {
            prefix: String::new(),
            after,
            limit: RANGE_LIMIT_MAX,
        };
        match coordination.call(range).await? {
            CoordinationReply::Entries {
                entries,
                revision,
                more,
            } => {
                all.extend(entries.into_iter().map(|entry| (entry.key.clone(), entry)));
                if !more {
                    return Ok((all, revision));
                }
            }
            other => unreachable!("a range is answered by Entries, not {other:?}"),
        }
    }
}

/// Lets the peer and whoever listens know the cluster as of a revision, once somebody owns the directory.
fn enter(
    entries: &BTreeMap<String, Entry>,
    revision: Revision,
    me: NodeId,
    peer: &Peer,
    heard: &mpsc::UnboundedSender<Heard>,
) {
    let members: BTreeMap<NodeId, MemberRecord> = entries
        .values()
        .filter(|entry| entry.key.starts_with(MEMBER_PREFIX))
        .filter_map(|entry| Some((NodeId(entry.created.0), decode(entry)?)))
        .collect();
    if !members.contains_key(&me) {
        peer.fence(true);
        let _ = heard.send(Heard::Evicted);
        return;
    }
    let Some(slots) = entries
        .get(SLOTS_KEY)
        .and_then(|entry| postcard::from_bytes(&entry.value).ok())
    else {
        return;
    };
    let parts = members.iter().map(|(node, record)| {
        (
            *node,
            Member {
                hosts: record.role == Role::Server,
                draining: record.draining,
            },
        )
    });
    let view = View {
        revision: revision.0,
        members: Arc::new(parts.collect()),
        slots,
    };
    let addresses = members
        .iter()
        .filter_map(|(node, record)| Some((*node, record.address?)));
    peer.enter(view, addresses);
    let _ = heard.send(Heard::Roster(Roster { members }));
}
