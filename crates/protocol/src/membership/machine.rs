//! The machine: joining, following the records and the view, and publishing the next view.

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

/// How long to wait before something that coordination failed at is tried again: long enough not to burden a service that
/// struggles, short against any lease.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Joining is given up after so many times the wanted time to live. A name whose last bearer has just died is free by then.
const JOIN_TTLS_MAX: u32 = 3;
/// Keep-alives whose answer is still waited for. A service that hangs is asked for ever; what it says to older ones does
/// not matter.
const KEEP_ALIVES_MAX: usize = 16;

/// One node's membership. Created by [`Membership::join`], which begins to join.
#[derive(Debug)]
pub struct Membership {
    record: MemberRecord,
    key: String,
    ttl: Duration,
    /// When joining is given up.
    join_until: Time,
    joined: Option<NodeId>,
    lease: Option<(LeaseId, Lease)>,
    requests: BTreeMap<RequestId, Asked>,
    last_request: u64,
    last_watch: u64,
    /// Everything under the prefix, as of `revision`.
    entries: BTreeMap<String, Entry>,
    revision: Revision,
    /// Whether the entries are followed by a watch.
    follows: bool,
    /// Whether entries have changed since they were last looked at.
    changed: bool,
    /// The revision of this member's own last commit: before the watch has brought it nothing more is published.
    committed: Revision,
    roster: Roster,
    published: Option<Published>,
    hold: Hold,
    /// Members of the view that have certainly stopped, remembered because their records go with their leases.
    stopped: BTreeSet<NodeId>,
    pending_writes: PendingWrites,
    retry_at: Option<Time>,
    /// It has stopped acting, and waits for its farewell to be noted.
    leaving: bool,
    ended: bool,
    planted: Planted,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Grant { at: Time },
    Enter,
    KeepAlive(KeepAliveId),
    Read,
    Publish,
    PendingWrite(NodeId),
    Farewell,
    Revoke,
}

impl Membership {
    /// Begins to join: the record is put there under a lease of this time to live.
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
            follows: false,
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
        membership.go_on(now, out);
        membership
    }

    /// Plants a bug, to see whether it is found.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: crate::Bug) {
        self.planted.bug = Some(bug);
    }

    /// This node, once it has joined.
    pub fn me(&self) -> Option<NodeId> {
        self.joined
    }

    /// Until when the node may act, as far as it knows now; nothing before it has joined and after it has ended.
    pub fn may_act_until(&self) -> Option<Time> {
        let (_, lease) = self.lease.as_ref()?;
        (self.joined.is_some() && !self.ended).then(|| lease.good_until())
    }

    /// When [`MembershipEvent::Timer`] is wanted next.
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

    /// Takes in one event and appends what is to be done to `out`. `now` never goes back.
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
                if let Some(asked) = self.requests.remove(&request) {
                    self.on_answer(now, asked, result, out);
                }
            }
            MembershipEvent::Watched { watch, batch } if watch.0 == self.last_watch && self.follows => {
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
        self.go_on(now, out);
    }

    fn tick_lease(&mut self, now: Time, out: &mut Vec<MembershipCommand>) {
        let mut commands = Vec::new();
        if let Some((_, lease)) = &mut self.lease {
            lease.tick(now, &mut commands);
        }
        self.carry_out(commands, out);
    }

    fn carry_out(&mut self, commands: Vec<LeaseCommand>, out: &mut Vec<MembershipCommand>) {
        let Some((id, _)) = self.lease else { return };
        for command in commands {
            match command {
                LeaseCommand::KeepAlive(number) => {
                    self.forget_old_keep_alives();
                    self.submit(
                        Asked::KeepAlive(number),
                        CoordinationRequest::KeepAlive { lease: id },
                        out,
                    );
                }
                LeaseCommand::Fence => out.push(MembershipCommand::Fence),
                // Whoever acts hears until when it may.
                LeaseCommand::Unfence => {}
                LeaseCommand::End if self.joined.is_some() => self.end(MembershipEnd::Evicted, out),
                // It ran out before the record was there: joining begins anew.
                LeaseCommand::End => {
                    self.lease = None;
                    self.requests.retain(|_, asked| *asked != Asked::Enter);
                    return;
                }
            }
        }
    }

    fn forget_old_keep_alives(&mut self) {
        let is_one = |asked: &Asked| matches!(asked, Asked::KeepAlive(_));
        let mut waiting = self
            .requests
            .iter()
            .filter(|(_, asked)| is_one(asked))
            .map(|(id, _)| *id);
        let oldest = waiting.next();
        if waiting.count() + 1 >= KEEP_ALIVES_MAX {
            self.requests.remove(&oldest.expect("there are many"));
        }
    }

    fn submit(&mut self, asked: Asked, what: CoordinationRequest, out: &mut Vec<MembershipCommand>) {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.requests.insert(request, asked);
        out.push(MembershipCommand::Submit { request, what });
    }

    fn is_asking(&self, wanted: impl Fn(&Asked) -> bool) -> bool {
        self.requests.values().any(wanted)
    }

    fn end(&mut self, why: MembershipEnd, out: &mut Vec<MembershipCommand>) {
        self.ended = true;
        out.push(MembershipCommand::Fence);
        out.push(MembershipCommand::MayActUntil(Time::ZERO));
        out.push(MembershipCommand::Ended(why));
    }

    /// Says that this node has stopped, and gives its lease back. The driver is told that it may not act first.
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
                self.submit(Asked::Farewell, commit.when(&self.key, KeyState::Present).into(), out);
            }
            _ => self.end(MembershipEnd::Left, out),
        }
    }

    /// Does what the present state of things asks for.
    fn go_on(&mut self, now: Time, out: &mut Vec<MembershipCommand>) {
        if self.ended || self.leaving {
            return;
        }
        let may_ask = self.retry_at.is_none();
        match self.joined {
            None if may_ask => self.enter(now, out),
            Some(me) if self.follows => {
                if std::mem::take(&mut self.changed) {
                    self.learn(me, out);
                }
                self.hold_the_missing(now);
                if !self.ended && may_ask && self.revision >= self.committed {
                    self.publish(me, out);
                    self.ask_for_wishes(out);
                }
            }
            Some(_) if may_ask && !self.is_asking(|asked| *asked == Asked::Read) => {
                self.entries.clear();
                self.revision = Revision(0);
                self.read(out);
            }
            _ => {}
        }
    }

    /// The next step of joining.
    fn enter(&mut self, now: Time, out: &mut Vec<MembershipCommand>) {
        if self.is_asking(|asked| matches!(asked, Asked::Grant { .. } | Asked::Enter)) {
            return;
        }
        match &self.lease {
            None => {
                let ttl = self.ttl;
                self.submit(Asked::Grant { at: now }, CoordinationRequest::Grant { ttl }, out);
            }
            Some((lease, _)) => {
                let commit = Commit::put_bound(&self.key, self.record.encode(), *lease);
                self.submit(Asked::Enter, commit.when(&self.key, KeyState::Absent).into(), out);
            }
        }
    }

    /// Reads records and view from the entries, and tells what is new.
    fn learn(&mut self, me: NodeId, out: &mut Vec<MembershipCommand>) {
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

    /// Members of the view without a record may still act, unless they have said that they have stopped.
    fn hold_the_missing(&mut self, now: Time) {
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

    /// Publishes the next view, if it is this member's part to do so and there is anything new.
    fn publish(&mut self, me: NodeId, out: &mut Vec<MembershipCommand>) {
        let mut may = self
            .roster
            .members
            .iter()
            .filter(|(_, record)| record.role != Role::Client && !record.stopped);
        let is_mine = may.next().is_some_and(|(first, _)| *first == me) || self.planted.is(Bug::PublishBlindly);
        if !is_mine || self.is_asking(|asked| *asked == Asked::Publish) {
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
        self.submit(Asked::Publish, commit.into(), out);
    }

    fn ask_for_wishes(&mut self, out: &mut Vec<MembershipCommand>) {
        if !self.pending_writes.are_left() {
            return;
        }
        let (entries, roster) = (&self.entries, &self.roster);
        let entry_of = |node: NodeId| {
            let record = roster.members.get(&node)?;
            let entry = entries.get(&MemberRecord::key(&record.name))?;
            Some((entry, record))
        };
        for (node, what) in self.pending_writes.requests(entry_of) {
            self.submit(Asked::PendingWrite(node), what, out);
        }
    }
}
