//! The membership state machine: joins, watches the records and the view, and publishes the next view.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use elastin_types::{NodeId, Time};

use super::pending_writes::PendingWrites;
use super::published::{Published, VIEW_KEY};
use super::slot_hold::Hold;
use super::{MemberRecord, MembershipCommand, MembershipEnd, MembershipEvent, RequestId, Role, Roster};
use crate::bug::{Bug, Planted};
use crate::store::{Commit, CoordinationRequest, Entry, KeyState, LeaseId, Revision};
use crate::{KeepAliveId, Lease, LeaseCommand};

/// Pause before a failed request is retried: long enough not to burden a struggling service, short compared to a lease.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Joining times out after this many times to live. The name of a crashed member is free by then.
const JOIN_TTLS_MAX: u32 = 3;
/// The most keep-alives in flight. Answers to older ones do not matter, and a hung service must not grow the table.
const KEEP_ALIVES_MAX: usize = 16;

/// One node's membership. [`Membership::join`] creates it and starts joining.
#[derive(Debug)]
pub struct Membership {
    record: MemberRecord,
    key: String,
    ttl: Duration,
    /// Deadline for joining.
    join_until: Time,
    joined: Option<NodeId>,
    lease: Option<(LeaseId, Lease)>,
    requests: BTreeMap<RequestId, RequestKind>,
    last_request: u64,
    last_watch: u64,
    /// Everything under the prefix, as of `revision`.
    entries: BTreeMap<String, Entry>,
    revision: Revision,
    /// Whether a watch keeps the entries up to date.
    watching: bool,
    /// Whether entries have changed since they were last processed.
    changed: bool,
    /// The revision of this member's last commit. Nothing is published until the watch has delivered it.
    committed: Revision,
    roster: Roster,
    published: Option<Published>,
    hold: Hold,
    /// Members of the view that have certainly stopped. Kept here because their records are deleted with their leases.
    stopped: BTreeSet<NodeId>,
    pending_writes: PendingWrites,
    retry_at: Option<Time>,
    /// This node has stopped acting, and waits for its final write.
    leaving: bool,
    ended: bool,
    planted: Planted,
}

/// Purpose of a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Grant { at: Time },
    Enter,
    KeepAlive(KeepAliveId),
    Read,
    Publish,
    PendingWrite(NodeId),
    MarkStopped,
    Revoke,
}

impl Membership {
    /// Starts joining: writes the record under a lease of this time to live.
    pub fn join(now: Time, record: MemberRecord, ttl: Duration, out: &mut Vec<MembershipCommand>) -> Self {
        let mut membership = Self {
            key: MemberRecord::key(&record.name),
            record,
            ttl,
            join_until: now + ttl * JOIN_TTLS_MAX,
            joined: None,
            lease: None,
            requests: BTreeMap::new(),
            last_request: 0,
            last_watch: 0,
            entries: BTreeMap::new(),
            revision: Revision(0),
            watching: false,
            changed: false,
            committed: Revision(0),
            roster: Roster::default(),
            published: None,
            hold: Hold::default(),
            stopped: BTreeSet::new(),
            pending_writes: PendingWrites::default(),
            retry_at: None,
            leaving: false,
            ended: false,
            planted: Planted::default(),
        };
        membership.advance(now, out);
        membership
    }

    /// Plants a bug, to verify that tests detect it.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: crate::Bug) {
        self.planted.bug = Some(bug);
    }

    /// This node, once it has joined.
    pub fn me(&self) -> Option<NodeId> {
        self.joined
    }

    /// Until when the node may act, as far as it knows; `None` before it has joined and after it has ended.
    pub fn may_act_until(&self) -> Option<Time> {
        let (_, lease) = self.lease.as_ref()?;
        (self.joined.is_some() && !self.ended).then(|| lease.good_until())
    }

    /// When the driver must send the next [`MembershipEvent::Timer`].
    pub fn next_timer(&self) -> Option<Time> {
        if self.ended || self.leaving {
            return None;
        }
        let lease = self.lease.as_ref().and_then(|(_, lease)| lease.next_timer());
        [lease, self.hold.next_timer(), self.retry_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles one event and appends the resulting commands to `out`. `now` must be monotonic.
    pub fn handle(&mut self, now: Time, event: MembershipEvent, out: &mut Vec<MembershipCommand>) {
        if self.ended {
            return;
        }
        if !self.leaving {
            self.tick_lease(now, out);
        }
        self.hold.pass(now);
        match event {
            MembershipEvent::Answered { request, result } => {
                if let Some(kind) = self.requests.remove(&request) {
                    self.on_answer(now, kind, result, out);
                }
            }
            MembershipEvent::Watched { watch, batch } if watch.0 == self.last_watch && self.watching => {
                self.on_watched(now, batch);
            }
            MembershipEvent::Watched { .. } => {}
            MembershipEvent::Drain { node, draining } => self.pending_writes.drain(node, draining),
            MembershipEvent::Suspect { node } => self.pending_writes.end(node, false),
            MembershipEvent::Stopped { node } => self.pending_writes.end(node, true),
            MembershipEvent::Leave if self.leaving => {}
            MembershipEvent::Leave => self.leave(out),
            MembershipEvent::Timer => {}
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        self.advance(now, out);
    }

    fn tick_lease(&mut self, now: Time, out: &mut Vec<MembershipCommand>) {
        let mut commands = Vec::new();
        if let Some((_, lease)) = &mut self.lease {
            lease.tick(now, &mut commands);
        }
        self.execute(commands, out);
    }

    fn execute(&mut self, commands: Vec<LeaseCommand>, out: &mut Vec<MembershipCommand>) {
        let Some((id, _)) = self.lease else { return };
        for command in commands {
            match command {
                LeaseCommand::KeepAlive(number) => {
                    self.drop_oldest_keep_alive();
                    self.submit(
                        RequestKind::KeepAlive(number),
                        CoordinationRequest::KeepAlive { lease: id },
                        out,
                    );
                }
                LeaseCommand::Fence => out.push(MembershipCommand::Fence),
                // `MayActUntil` resumes the driver.
                LeaseCommand::Unfence => {}
                LeaseCommand::End if self.joined.is_some() => self.end(MembershipEnd::Evicted, out),
                // It expired before the record was written: joining restarts.
                LeaseCommand::End => {
                    self.lease = None;
                    self.requests.retain(|_, kind| *kind != RequestKind::Enter);
                    return;
                }
            }
        }
    }

    fn drop_oldest_keep_alive(&mut self) {
        let is_one = |kind: &RequestKind| matches!(kind, RequestKind::KeepAlive(_));
        let mut waiting = self.requests.iter().filter(|(_, kind)| is_one(kind)).map(|(id, _)| *id);
        let oldest = waiting.next();
        if waiting.count() + 1 >= KEEP_ALIVES_MAX {
            self.requests.remove(&oldest.expect("the count is not zero"));
        }
    }

    fn submit(&mut self, kind: RequestKind, body: CoordinationRequest, out: &mut Vec<MembershipCommand>) {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.requests.insert(request, kind);
        out.push(MembershipCommand::Submit { request, what: body });
    }

    fn is_in_flight(&self, wanted: impl Fn(&RequestKind) -> bool) -> bool {
        self.requests.values().any(wanted)
    }

    fn end(&mut self, why: MembershipEnd, out: &mut Vec<MembershipCommand>) {
        self.ended = true;
        out.push(MembershipCommand::Fence);
        out.push(MembershipCommand::MayActUntil(Time::ZERO));
        out.push(MembershipCommand::Ended(why));
    }

    /// Marks this node as stopped and revokes its lease. The driver is fenced first.
    fn leave(&mut self, out: &mut Vec<MembershipCommand>) {
        out.push(MembershipCommand::Fence);
        out.push(MembershipCommand::MayActUntil(Time::ZERO));
        self.leaving = true;
        self.requests.clear();
        match (&self.lease, self.joined) {
            (Some((lease, _)), Some(_)) => {
                let mut record = self.record.clone();
                record.stopped = true;
                let commit = Commit::put_bound(&self.key, record.encode(), *lease);
                self.submit(
                    RequestKind::MarkStopped,
                    commit.when(&self.key, KeyState::Present).into(),
                    out,
                );
            }
            _ => self.end(MembershipEnd::Left, out),
        }
    }

    /// Submits the next requests that the current state calls for.
    fn advance(&mut self, now: Time, out: &mut Vec<MembershipCommand>) {
        if self.ended || self.leaving {
            return;
        }
        let may_submit = self.retry_at.is_none();
        match self.joined {
            None if may_submit => self.enter(now, out),
            Some(me) if self.watching => {
                if std::mem::take(&mut self.changed) {
                    self.process_entries(me, out);
                }
                self.hold_missing_members(now);
                if !self.ended && may_submit && self.revision >= self.committed {
                    self.publish(me, out);
                    self.submit_pending_writes(out);
                }
            }
            Some(_) if may_submit && !self.is_in_flight(|kind| *kind == RequestKind::Read) => {
                self.entries.clear();
                self.revision = Revision(0);
                self.read(out);
            }
            _ => {}
        }
    }

    /// The next step of joining.
    fn enter(&mut self, now: Time, out: &mut Vec<MembershipCommand>) {
        if self.is_in_flight(|kind| matches!(kind, RequestKind::Grant { .. } | RequestKind::Enter)) {
            return;
        }
        match &self.lease {
            None => {
                let ttl = self.ttl;
                self.submit(RequestKind::Grant { at: now }, CoordinationRequest::Grant { ttl }, out);
            }
            Some((lease, _)) => {
                let commit = Commit::put_bound(&self.key, self.record.encode(), *lease);
                self.submit(RequestKind::Enter, commit.when(&self.key, KeyState::Absent).into(), out);
            }
        }
    }

    /// Decodes records and view from the entries, and reports the changes.
    fn process_entries(&mut self, me: NodeId, out: &mut Vec<MembershipCommand>) {
        let records = self.entries.values().filter_map(MemberRecord::decode);
        let roster = Roster {
            members: records.collect(),
        };
        if !roster.members.contains_key(&me) {
            return self.end(MembershipEnd::Evicted, out);
        }
        if roster != self.roster {
            self.roster = roster.clone();
            out.push(MembershipCommand::Roster(roster.without_stopped()));
        }
        let Some(entry) = self.entries.get(VIEW_KEY) else {
            return;
        };
        let known = self.published.as_ref().map_or(0, |published| published.revision);
        let Some(published) = Published::decode(&entry.value).filter(|published| published.revision > known) else {
            return;
        };
        let view = published.view();
        self.published = Some(published);
        if view.is_dead(me) {
            return self.end(MembershipEnd::Evicted, out);
        }
        if view.members.contains_key(&me) {
            out.push(MembershipCommand::View(view));
        }
    }

    /// Starts holds on members of the view without a record: they may still act, unless marked as stopped.
    fn hold_missing_members(&mut self, now: Time) {
        let Some(published) = &self.published else { return };
        for (node, member) in &published.members {
            match self.roster.members.get(node) {
                Some(record) if record.stopped => drop(self.stopped.insert(*node)),
                None if self.stopped.contains(node) => {}
                Some(_) if !self.planted.is(Bug::HoldFromRecord) => {}
                _ => self.hold.begin(now, *node, member.lease_ttl),
            }
        }
        self.hold.keep_only(|node| published.members.contains_key(&node));
        self.stopped.retain(|node| published.members.contains_key(node));
    }

    fn is_held(&self, node: NodeId) -> bool {
        let is_known = self.roster.members.contains_key(&node) || self.stopped.contains(&node);
        !is_known && !self.hold.is_over(node) && !self.planted.is(Bug::SkipHold)
    }

    /// Publishes the next view, if this member is the publisher and the view differs.
    fn publish(&mut self, me: NodeId, out: &mut Vec<MembershipCommand>) {
        let mut candidates = self
            .roster
            .members
            .iter()
            .filter(|(_, record)| record.role != Role::Client && !record.stopped);
        let is_mine = candidates.next().is_some_and(|(first, _)| *first == me) || self.planted.is(Bug::PublishBlindly);
        if !is_mine || self.is_in_flight(|kind| *kind == RequestKind::Publish) {
            return;
        }
        let before = self.entries.get(VIEW_KEY).map(|entry| entry.modified);
        let revision = match self.planted.is(Bug::ViewTooNew) {
            true => self.revision.0 + 2,
            false => self.revision.0,
        };
        let Some(next) = Published::next(self.published.as_ref(), revision, &self.roster, |node| {
            self.is_held(node)
        }) else {
            return;
        };
        let unchanged = before.map_or(KeyState::Absent, KeyState::ModifiedAt);
        let mut commit = Commit::put(VIEW_KEY, next.encode());
        if !self.planted.is(Bug::PublishBlindly) {
            commit = commit.when(VIEW_KEY, unchanged).when(&self.key, KeyState::Present);
        }
        self.submit(RequestKind::Publish, commit.into(), out);
    }

    fn submit_pending_writes(&mut self, out: &mut Vec<MembershipCommand>) {
        if !self.pending_writes.any() {
            return;
        }
        let (entries, roster) = (&self.entries, &self.roster);
        let entry_of = |node: NodeId| {
            let record = roster.members.get(&node)?;
            let entry = entries.get(&MemberRecord::key(&record.name))?;
            Some((entry, record))
        };
        for (node, request) in self.pending_writes.requests(entry_of) {
            self.submit(RequestKind::PendingWrite(node), request, out);
        }
    }
}
