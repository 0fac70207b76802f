//! Memberships over the coordination model, without delays.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use elastin_types::{NodeId, Time};

use super::*;
use crate::store::{CoordinationModel, CoordinationRequest, Revision, StoreFailure};
use crate::{Slot, View};

const TTL: Duration = Duration::from_millis(800);
/// A member is dropped within this time after its lease ends: the hold, and some requests.
const HELD: Duration = Duration::from_millis(850);

/// A membership and the commands it has issued.
struct TestMember {
    membership: Membership,
    watch: Option<(WatchId, Revision)>,
    view: Option<View>,
    until: Time,
    ended: Option<MembershipEnd>,
}

/// A few members and the service, all on one clock.
struct Cluster {
    now: Time,
    service: CoordinationModel,
    away: bool,
    members: BTreeMap<&'static str, TestMember>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            now: Time(1_000_000_000),
            service: CoordinationModel::default(),
            away: false,
            members: BTreeMap::new(),
        }
    }

    fn join(&mut self, name: &'static str, role: Role) -> NodeId {
        self.try_join(name, role);
        self.members[name].membership.me().expect("joining succeeds at once")
    }

    fn try_join(&mut self, name: &'static str, role: Role) {
        let mut commands = Vec::new();
        let membership = Membership::join(self.now, MemberRecord::new(name, role, None), TTL, &mut commands);
        let member = TestMember {
            membership,
            watch: None,
            view: None,
            until: Time::ZERO,
            ended: None,
        };
        self.members.insert(name, member);
        self.execute(name, commands);
        self.deliver_changes();
    }

    fn handle(&mut self, name: &'static str, event: MembershipEvent) {
        let mut commands = Vec::new();
        let member = self.members.get_mut(name).expect("the member exists");
        member.membership.handle(self.now, event, &mut commands);
        self.execute(name, commands);
        self.deliver_changes();
    }

    fn execute(&mut self, name: &'static str, commands: Vec<MembershipCommand>) {
        let mut commands = VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            let member = self.members.get_mut(name).expect("the member exists");
            match command {
                MembershipCommand::Submit { request, what: body } => {
                    let result = match self.away {
                        true => Err(StoreFailure::Unreachable { reason: "away".into() }.into()),
                        false => self.service.handle(self.now, body),
                    };
                    let mut more = Vec::new();
                    let event = MembershipEvent::Answered { request, result };
                    member.membership.handle(self.now, event, &mut more);
                    commands.extend(more);
                }
                MembershipCommand::Watch { watch, from } => member.watch = Some((watch, from)),
                MembershipCommand::View(view) => member.view = Some(view),
                MembershipCommand::MayActUntil(until) => member.until = until,
                MembershipCommand::Ended(end) => member.ended = Some(end),
                MembershipCommand::Joined { .. } | MembershipCommand::Roster(_) | MembershipCommand::Fence => {}
            }
        }
    }

    /// Delivers changes to every watch, until none is behind.
    fn deliver_changes(&mut self) {
        loop {
            let revision = self.service.revision();
            let behind = |member: &TestMember| member.watch.is_some_and(|(_, from)| from <= revision) && !self.away;
            let Some(name) = self
                .members
                .iter()
                .find(|(_, member)| behind(member))
                .map(|(name, _)| *name)
            else {
                return;
            };
            let member = self.members.get_mut(name).expect("the member exists");
            let (watch, from) = member.watch.expect("the member is watching");
            let batch = self.service.changes(CLUSTER_PREFIX, from);
            member.watch = Some((watch, revision.next()));
            let mut commands = Vec::new();
            member
                .membership
                .handle(self.now, MembershipEvent::Watched { watch, batch }, &mut commands);
            self.execute(name, commands);
        }
    }

    /// Advances time while the named members are paused.
    fn pass(&mut self, time: Duration, paused: &[&str]) {
        let end = self.now + time;
        loop {
            let runs = |name: &&&'static str| !paused.contains(*name);
            let timers = self.members.iter().filter(|(name, _)| runs(name));
            let next = timers
                .filter_map(|(name, member)| Some((member.membership.next_timer()?, *name)))
                .min();
            let lease = (!self.away).then(|| self.service.next_end()).flatten();
            let at = next.map(|(at, _)| at).into_iter().chain(lease).min();
            match at {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            if !self.away {
                self.service.expire(self.now);
            }
            self.deliver_changes();
            if let Some((at, name)) = next.filter(|(at, _)| *at <= self.now) {
                self.now = self.now.max(at);
                self.handle(name, MembershipEvent::Timer);
            }
        }
        self.now = end;
    }

    fn members_seen_by(&self, name: &str) -> Vec<NodeId> {
        let view = self.members[name].view.as_ref().expect("the member has a view");
        view.members.keys().copied().collect()
    }

    fn may_act(&self, name: &str) -> bool {
        self.now < self.members[name].until
    }
}

#[test]
fn members_agree_on_members_and_slot_owners() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    let client = cluster.join("client", Role::Client);
    for name in ["one", "two", "client"] {
        assert_eq!(cluster.members_seen_by(name), [one, two, client], "{name}");
        assert!(cluster.may_act(name), "{name}");
    }
    let view = cluster.members["client"].view.as_ref().expect("the member has a view");
    let of_two = Slot::all().filter(|slot| view.slots.owner(*slot).node == two).count();
    assert_eq!(of_two, crate::SLOT_COUNT / 2);
}

#[test]
fn a_crashed_member_is_dropped_after_lease_and_hold() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    // The hold starts only when the lease has expired.
    cluster.pass(TTL + TTL - Duration::from_millis(20), &["one"]);
    assert_eq!(cluster.members_seen_by("two"), [one, two]);
    cluster.pass(Duration::from_millis(200), &["one"]);
    assert_eq!(
        cluster.members_seen_by("two"),
        [two],
        "the live member publishes, although the other has the lower id"
    );
    // When it resumes it may not act, and learns that it was evicted.
    assert!(!cluster.may_act("one"));
    cluster.pass(Duration::from_millis(1), &[]);
    assert_eq!(cluster.members["one"].ended, Some(MembershipEnd::Evicted));
}

#[test]
fn a_member_is_held_after_an_early_lease_revocation() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    let watch = cluster.members.get_mut("two").expect("the member exists").watch.take();
    cluster.handle("one", MembershipEvent::Suspect { node: two });
    assert!(cluster.may_act("two"), "it was not notified yet");
    assert_eq!(cluster.members_seen_by("one"), [one, two]);
    cluster.pass(HELD, &["two"]);
    assert!(!cluster.may_act("two"));
    assert_eq!(cluster.members_seen_by("one"), [one]);
    cluster.members.get_mut("two").expect("the member exists").watch = watch;
    cluster.deliver_changes();
    assert_eq!(cluster.members["two"].ended, Some(MembershipEnd::Evicted));
}

#[test]
fn a_stopped_member_is_not_held() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    cluster.join("two", Role::Server);
    let three = cluster.join("three", Role::Server);
    cluster.handle("two", MembershipEvent::Leave);
    assert_eq!(cluster.members["two"].ended, Some(MembershipEnd::Left));
    assert_eq!(cluster.members_seen_by("one"), [one, three]);
    cluster.handle("one", MembershipEvent::Stopped { node: three });
    assert_eq!(cluster.members_seen_by("one"), [one]);
}

#[test]
fn a_draining_member_gives_up_its_slots_and_takes_no_actors() {
    let mut cluster = Cluster::new();
    cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    let draining = true;
    cluster.handle("one", MembershipEvent::Drain { node: two, draining });
    let view = cluster.members["two"].view.clone().expect("the member has a view");
    assert!(!view.takes_actors(two) && !view.slots.is_owner(two));
}

#[test]
fn nodes_are_fenced_without_coordination_and_resume_after() {
    let mut cluster = Cluster::new();
    cluster.join("one", Role::Server);
    cluster.join("two", Role::Server);
    cluster.away = true;
    cluster.pass(TTL, &[]);
    assert!(!cluster.may_act("one") && !cluster.may_act("two"));
    // The service could not receive keep-alives, so it extends every lease.
    cluster.service.postpone_ends(TTL);
    cluster.away = false;
    cluster.pass(TTL / 2, &[]);
    assert!(cluster.may_act("one") && cluster.may_act("two"));
    assert_eq!(cluster.members["one"].ended, None);
}

#[test]
fn a_name_is_free_after_its_lease_has_expired() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let before = cluster.members.remove("one").expect("the member exists");
    cluster.try_join("one", Role::Server);
    assert_eq!(cluster.members["one"].membership.me(), None);
    cluster.pass(TTL + TTL / 2, &[]);
    let again = cluster.members["one"]
        .membership
        .me()
        .expect("the old lease has expired");
    assert!(again > one && before.membership.me() == Some(one));
}

#[test]
fn joining_succeeds_after_a_lost_answer() {
    let mut cluster = Cluster::new();
    let mut commands = Vec::new();
    let mut membership = Membership::join(
        cluster.now,
        MemberRecord::new("one", Role::Server, None),
        TTL,
        &mut commands,
    );
    let mut lost = true;
    let mut joined = None;
    let mut commands = VecDeque::from(commands);
    while joined.is_none() {
        let Some(command) = commands.pop_front() else {
            cluster.now = membership.next_timer().expect("joining is retried");
            let mut more = Vec::new();
            membership.handle(cluster.now, MembershipEvent::Timer, &mut more);
            commands.extend(more);
            continue;
        };
        match command {
            MembershipCommand::Submit { request, what: body } => {
                let is_enter = matches!(body, CoordinationRequest::Commit(_));
                let mut result = cluster.service.handle(cluster.now, body);
                if is_enter && std::mem::take(&mut lost) {
                    result = Err(StoreFailure::Interrupted { reason: "lost".into() }.into());
                }
                let mut more = Vec::new();
                membership.handle(cluster.now, MembershipEvent::Answered { request, result }, &mut more);
                commands.extend(more);
            }
            MembershipCommand::Joined { node } => joined = Some(node),
            _ => {}
        }
    }
    assert_eq!(joined, Some(NodeId(1)), "the first request was applied");
}
