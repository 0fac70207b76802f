//! The stored view, and the computation of the next one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastin_types::{NodeId, SlotEpoch};
use serde::{Deserialize, Serialize};

use super::{MemberRecord, Role, Roster};
use crate::{Member, SlotTable, View};

/// The key of the view.
pub(super) const VIEW_KEY: &str = "cluster/view";

/// The view as stored in the coordination service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Published {
    /// The revision whose records it was computed from. A node that had joined by then and is missing here has stopped.
    pub(super) revision: u64,
    pub(super) members: BTreeMap<NodeId, PublishedMember>,
    pub(super) slots: SlotTable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PublishedMember {
    pub(super) part: Member,
    /// How long the member may act after its last sign of life. Stored here because its record goes with its lease.
    pub(super) lease_ttl: Duration,
}

impl Published {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a view is plain data")
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    pub(super) fn view(&self) -> View {
        let members = self.members.iter().map(|(node, member)| (*node, member.part));
        View {
            revision: self.revision,
            members: Arc::new(members.collect()),
            slots: self.slots.clone(),
        }
    }

    /// The view that should follow this one (or be the first), if it differs: members with a record, and held members.
    pub(super) fn next(
        before: Option<&Published>,
        revision: u64,
        roster: &Roster,
        is_held: impl Fn(NodeId) -> bool,
    ) -> Option<Published> {
        let here = roster.members.iter().filter(|(_, record)| !record.stopped);
        let mut members: BTreeMap<NodeId, PublishedMember> =
            here.map(|(node, record)| (*node, published(record))).collect();
        let known = before.iter().flat_map(|before| &before.members);
        for (node, member) in known.filter(|(node, _)| is_held(**node)) {
            members.entry(*node).or_insert(*member);
        }
        let slots = owners(before, roster, &members);
        let slots = match before {
            None if slots.is_empty() => return None,
            None => SlotTable::shared_by(&slots, SlotEpoch(1)),
            Some(before) => before.slots.rebalanced(&slots).unwrap_or_else(|| before.slots.clone()),
        };
        let is_news = before.is_none_or(|before| before.members != members || before.slots != slots);
        is_news.then_some(Published {
            revision,
            members,
            slots,
        })
    }
}

fn published(record: &MemberRecord) -> PublishedMember {
    PublishedMember {
        part: record.member(),
        lease_ttl: record.lease_ttl,
    }
}

/// The nodes that should own slots: the supervisor if there is one, otherwise the servers that stay. A held member
/// keeps its slots.
fn owners(before: Option<&Published>, roster: &Roster, members: &BTreeMap<NodeId, PublishedMember>) -> Vec<NodeId> {
    let stays = |node: &NodeId| roster.members.get(node).is_some_and(|record| !record.stopped);
    let supervisor = roster
        .members
        .iter()
        .find(|(node, record)| record.role == Role::Supervisor && stays(node));
    let is_held = |node: &NodeId| !stays(node);
    let keeps = |node: &NodeId| is_held(node) && before.is_some_and(|before| before.slots.is_owner(*node));
    let shares = |node: &NodeId, member: &PublishedMember| match supervisor {
        Some((supervisor, _)) => node == supervisor,
        None => stays(node) && member.part.hosts && !member.part.draining,
    };
    let owners = members
        .iter()
        .filter(|(node, member)| shares(node, member) || keeps(node));
    owners.map(|(node, _)| *node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastin_golden as golden;

    use crate::Slot;

    fn roster(records: &[(u64, Role, bool)]) -> Roster {
        let record = |(id, role, draining): &(u64, Role, bool)| {
            let mut record = MemberRecord::new(format!("m{id}"), *role, None);
            record.draining = *draining;
            (NodeId(*id), record)
        };
        Roster {
            members: records.iter().map(record).collect(),
        }
    }

    fn owners_of(view: &Published) -> Vec<u64> {
        let all: std::collections::BTreeSet<u64> = Slot::all().map(|slot| view.slots.owner(slot).node.0).collect();
        all.into_iter().collect()
    }

    #[test]
    fn servers_share_slots_and_draining_ones_give_theirs_up() {
        let one = [(1, Role::Server, false), (2, Role::Client, false)];
        assert_eq!(
            Published::next(None, 3, &roster(&one[1..]), |_| false),
            None,
            "a client cannot own slots"
        );
        let first = Published::next(None, 3, &roster(&one), |_| false).expect("there was no view");
        assert_eq!(owners_of(&first), [1]);
        assert_eq!(Published::next(Some(&first), 4, &roster(&one), |_| false), None);

        let two = [
            (1, Role::Server, false),
            (2, Role::Client, false),
            (5, Role::Server, false),
        ];
        let second = Published::next(Some(&first), 6, &roster(&two), |_| false).expect("one joined");
        assert_eq!(owners_of(&second), [1, 5]);
        let emptied = [(1, Role::Server, true), (5, Role::Server, false)];
        let third = Published::next(Some(&second), 8, &roster(&emptied), |_| false).expect("the view changed");
        assert_eq!(owners_of(&third), [5]);
        assert!(third.members[&NodeId(1)].part.draining);
    }

    #[test]
    fn held_members_stay_and_keep_their_slots() {
        let both = [(1, Role::Server, false), (5, Role::Server, false)];
        let before = Published::next(None, 6, &roster(&both), |_| false).expect("there was no view");
        let held = Published::next(Some(&before), 8, &roster(&both[..1]), |node| node == NodeId(5));
        assert_eq!(held, None, "nothing changes while it is held");
        let after = Published::next(Some(&before), 9, &roster(&both[..1]), |_| false).expect("its hold is over");
        assert_eq!((owners_of(&after), after.members.len()), (vec![1], 1));
    }

    #[test]
    fn a_supervisor_owns_all_slots() {
        let all = [(1, Role::Supervisor, false), (5, Role::Server, false)];
        let view = Published::next(None, 6, &roster(&all), |_| false).expect("there was no view");
        assert_eq!(owners_of(&view), [1]);
    }

    #[test]
    fn a_view_round_trips() {
        let all = [
            (1, Role::Server, false),
            (5, Role::Server, false),
            (9, Role::Client, false),
        ];
        let view = Published::next(None, 10, &roster(&all), |_| false).expect("there was no view");
        let bytes = view.encode();
        assert_eq!(Published::decode(&bytes), Some(view));
        assert_eq!(Published::decode(&bytes[..bytes.len() - 1]), None);
    }

    golden::samples! {
        fn roles() -> Role {
            "server": Role::Server => Role::Server,
            "client": Role::Client => Role::Client,
            "supervisor": Role::Supervisor => Role::Supervisor,
        }
    }

    /// Members of two builds share these encodings in one coordination service while a cluster is upgraded.
    #[test]
    fn stored_records_and_views_keep_their_encoding() {
        let records = roles().into_iter().map(|(name, role)| {
            let record = MemberRecord {
                name: "a".into(),
                role,
                address: Some(([10, 0, 0, 11], 7700).into()),
                draining: true,
                stopped: false,
                lease_ttl: Duration::from_millis(2500),
                certificate: Some("0123456789abcdef".into()),
                wire_versions: Some((3, 4)),
            };
            let json = String::from_utf8(record.encode()).expect("JSON is text");
            format!("{name}: {json}\n")
        });
        let mut lines: Vec<String> = records.collect();
        let earlier: MemberRecord = serde_json::from_str(r#"{"name":"a","role":"Server","address":null}"#)
            .expect("missing fields have defaults");
        assert_eq!(earlier, MemberRecord::new("a", Role::Server, None));
        let both = [(1, Role::Server, false), (5, Role::Server, true)];
        let view = Published::next(None, 6, &roster(&both), |_| false).expect("there was no view");
        lines.push(golden::line("view", &view.encode()));
        golden::check("tests/kept/members.txt", &lines);
    }
}
