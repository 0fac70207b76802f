//! Memberships over the model of the coordination service, without delays.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use elastin_types::{NodeId, Time};

use super::*;
use crate::store::{CoordinationModel, CoordinationRequest, Revision, StoreFailure};
use crate::{Slot, View};

const TTL: Duration = Duration::from_millis(800);
/// How long after the end of a lease a member is dropped at the latest: the hold, and some requests.
const HELD: Duration = Duration::from_millis(850);

/// What one member has heard.
struct Heard {
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
    members: BTreeMap<&'static str, Heard>,
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
        self.members[name].membership.me().expect("it joins at once")
    }

    fn try_join(&mut self, name: &'static str, role: Role) {
        let mut commands = Vec::new();
        let membership = Membership::join(self.now, MemberRecord::new(name, role, None), TTL, &mut commands);
        let heard = Heard {
            membership,
            watch: None,
            view: None,
            until: Time::ZERO,
            ended: None,
        };
        self.members.insert(name, heard);
        self.carry_out(name, commands);
        self.bring_changes();
    }

    fn tell(&mut self, name: &'static str, event: MembershipEvent) {
        let mut commands = Vec::new();
        let heard = self.members.get_mut(name).expect("it is there");
        heard.membership.handle(self.now, event, &mut commands);
        self.carry_out(name, commands);
        self.bring_changes();
    }

    fn carry_out(&mut self, name: &'static str, commands: Vec<MembershipCommand>) {
        let mut commands = VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            let heard = self.members.get_mut(name).expect("it is there");
            match command {
                MembershipCommand::Submit { request, what } => {
                    let result = match self.away {
                        true => Err(StoreFailure::Unreachable { reason: "away".into() }.into()),
                        false => self.service.handle(self.now, what),
                    };
                    let mut more = Vec::new();
                    let event = MembershipEvent::Answered { request, result };
                    heard.membership.handle(self.now, event, &mut more);
                    commands.extend(more);
                }
                MembershipCommand::Watch { watch, from } => heard.watch = Some((watch, from)),
                MembershipCommand::View(view) => heard.view = Some(view),
                MembershipCommand::MayActUntil(until) => heard.until = until,
                MembershipCommand::Ended(end) => heard.ended = Some(end),
                MembershipCommand::Joined { .. } | MembershipCommand::Roster(_) | MembershipCommand::Fence => {}
            }
        }
    }

    /// Lets every watch catch up, until nobody changes anything any more.
    fn bring_changes(&mut self) {
        loop {
            let revision = self.service.revision();
            let behind = |heard: &Heard| heard.watch.is_some_and(|(_, from)| from <= revision) && !self.away;
            let Some(name) = self
                .members
                .iter()
                .find(|(_, heard)| behind(heard))
                .map(|(name, _)| *name)
            else {
                return;
            };
            let heard = self.members.get_mut(name).expect("it was found");
            let (watch, from) = heard.watch.expect("it watches");
            let batch = self.service.changes(CLUSTER_PREFIX, from);
            heard.watch = Some((watch, revision.next()));
            let mut commands = Vec::new();
            heard
                .membership
                .handle(self.now, MembershipEvent::Watched { watch, batch }, &mut commands);
            self.carry_out(name, commands);
        }
    }

    /// Lets time pass; members whose names are given are stopped.
    fn pass(&mut self, time: Duration, stopped: &[&str]) {
        let end = self.now + time;
        loop {
            let runs = |name: &&&'static str| !stopped.contains(*name);
            let timers = self.members.iter().filter(|(name, _)| runs(name));
            let next = timers
                .filter_map(|(name, heard)| Some((heard.membership.next_timer()?, *name)))
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
            self.bring_changes();
            if let Some((at, name)) = next.filter(|(at, _)| *at <= self.now) {
                self.now = self.now.max(at);
                self.tell(name, MembershipEvent::Timer);
            }
        }
        self.now = end;
    }

    fn members_seen_by(&self, name: &str) -> Vec<NodeId> {
        let view = self.members[name].view.as_ref().expect("it has a view");
        view.members.keys().copied().collect()
    }

    fn may_act(&self, name: &str) -> bool {
        self.now < self.members[name].until
    }
}

#[test]
fn members_join_and_agree_on_who_is_there_and_who_owns_what() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    let client = cluster.join("client", Role::Client);
    for name in ["one", "two", "client"] {
        assert_eq!(cluster.members_seen_by(name), [one, two, client], "{name}");
        assert!(cluster.may_act(name), "{name}");
    }
    let view = cluster.members["client"].view.as_ref().expect("it has a view");
    let of_two = Slot::all().filter(|slot| view.slots.owner(*slot).node == two).count();
    assert_eq!(of_two, crate::SLOT_COUNT / 2);
}

#[test]
fn a_member_that_dies_is_dropped_after_its_lease_and_the_hold() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    // Its lease ends when its time to live is over; only then the hold begins.
    cluster.pass(TTL + TTL - Duration::from_millis(20), &["one"]);
    assert_eq!(cluster.members_seen_by("two"), [one, two]);
    cluster.pass(Duration::from_millis(200), &["one"]);
    assert_eq!(
        cluster.members_seen_by("two"),
        [two],
        "two publishes, though one has the lower id"
    );
    // When it wakes it may not act, and finds out that it has ended.
    assert!(!cluster.may_act("one"));
    cluster.pass(Duration::from_millis(1), &[]);
    assert_eq!(cluster.members["one"].ended, Some(MembershipEnd::Evicted));
}

#[test]
fn a_member_whose_lease_is_ended_early_may_act_until_it_hears_of_it_and_is_held_until_then() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    let watch = cluster.members.get_mut("two").expect("it is there").watch.take();
    cluster.tell("one", MembershipEvent::Suspect { node: two });
    assert!(cluster.may_act("two"), "it has not heard of it");
    assert_eq!(cluster.members_seen_by("one"), [one, two]);
    cluster.pass(HELD, &["two"]);
    assert!(!cluster.may_act("two"));
    assert_eq!(cluster.members_seen_by("one"), [one]);
    cluster.members.get_mut("two").expect("it is there").watch = watch;
    cluster.bring_changes();
    assert_eq!(cluster.members["two"].ended, Some(MembershipEnd::Evicted));
}

#[test]
fn who_has_stopped_is_not_held() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    cluster.join("two", Role::Server);
    let three = cluster.join("three", Role::Server);
    cluster.tell("two", MembershipEvent::Leave);
    assert_eq!(cluster.members["two"].ended, Some(MembershipEnd::Left));
    assert_eq!(cluster.members_seen_by("one"), [one, three]);
    cluster.tell("one", MembershipEvent::Stopped { node: three });
    assert_eq!(cluster.members_seen_by("one"), [one]);
}

#[test]
fn who_is_emptied_gives_its_slots_up_and_takes_no_actors() {
    let mut cluster = Cluster::new();
    cluster.join("one", Role::Server);
    let two = cluster.join("two", Role::Server);
    let draining = true;
    cluster.tell("one", MembershipEvent::Drain { node: two, draining });
    let view = cluster.members["two"].view.clone().expect("it has a view");
    assert!(!view.takes_actors(two) && !view.slots.is_owner(two));
}

#[test]
fn without_coordination_nodes_freeze_and_come_back_by_themselves() {
    let mut cluster = Cluster::new();
    cluster.join("one", Role::Server);
    cluster.join("two", Role::Server);
    cluster.away = true;
    cluster.pass(TTL, &[]);
    assert!(!cluster.may_act("one") && !cluster.may_act("two"));
    // The service was not able to hear signs of life, so it gives every lease more time.
    cluster.service.postpone_ends(TTL);
    cluster.away = false;
    cluster.pass(TTL / 2, &[]);
    assert!(cluster.may_act("one") && cluster.may_act("two"));
    assert_eq!(cluster.members["one"].ended, None);
}

#[test]
fn a_name_is_free_when_its_bearer_is_gone() {
    let mut cluster = Cluster::new();
    let one = cluster.join("one", Role::Server);
    let before = cluster.members.remove("one").expect("it is there");
    cluster.try_join("one", Role::Server);
    assert_eq!(cluster.members["one"].membership.me(), None);
    cluster.pass(TTL + TTL / 2, &[]);
    let again = cluster.members["one"].membership.me().expect("the lease has run out");
    assert!(again > one && before.membership.me() == Some(one));
}

#[test]
fn an_answer_that_was_lost_does_not_keep_a_node_out() {
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
            cluster.now = membership.next_timer().expect("it tries again");
            let mut more = Vec::new();
            membership.handle(cluster.now, MembershipEvent::Timer, &mut more);
            commands.extend(more);
            continue;
        };
        match command {
            MembershipCommand::Submit { request, what } => {
                let is_enter = matches!(what, CoordinationRequest::Commit(_));
                let mut result = cluster.service.handle(cluster.now, what);
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
    assert_eq!(joined, Some(NodeId(1)), "the first request was carried out");
}
