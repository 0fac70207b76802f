//! The reminder state machine over an in-memory store, with failing actors and adjusted clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::reminders::{DeliveryResult, DueRow, ReminderCommand, ReminderEvent, Reminders};
use elastin_protocol::{SLOT_COUNT, Slot};
use elastin_types::{ActorId, ActorType, Reminder, Time};

/// The most concurrent deliveries: the state machine's own limit.
const DELIVERIES_MAX: usize = 64;

const SECOND: Duration = Duration::from_secs(1);

struct World {
    machine: Reminders,
    now: Time,
    wall_ms: u64,
    rows: BTreeMap<Bytes, DueRow>,
    /// Wall-clock times at which each row was delivered.
    delivered: BTreeMap<DueRow, Vec<u64>>,
    /// Remaining delivery failures of each row.
    failures: BTreeMap<DueRow, u32>,
    /// Scans that include a row of this slot fail.
    damaged: Option<Slot>,
    scans: u64,
    most_at_once: usize,
}

impl World {
    fn new(slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut world = Self {
            machine: Reminders::default(),
            now: Time::ZERO,
            wall_ms: 10_000_000,
            rows: BTreeMap::new(),
            delivered: BTreeMap::new(),
            failures: BTreeMap::new(),
            damaged: None,
            scans: 0,
            most_at_once: 0,
        };
        world.handle(ReminderEvent::Slots(slots.into_iter().collect()));
        world
    }

    /// Writes a row without notifying the owner.
    fn write(&mut self, actor: u64, name: &str, after_ms: i64) -> DueRow {
        let actor = ActorId::new(ActorType::of("Bell"), actor);
        let due_ms = self.wall_ms.saturating_add_signed(after_ms);
        let name = name.to_owned();
        let row = DueRow::new(actor, Reminder { name, due_ms });
        self.rows.insert(row.key().name, row.clone());
        row
    }

    /// Sets a reminder and notifies the owner.
    fn set(&mut self, actor: u64, after_ms: i64) -> DueRow {
        let row = self.write(actor, "ring", after_ms);
        self.note(&row);
        row
    }

    fn note(&mut self, row: &DueRow) {
        let (slot, due_ms) = (row.slot, row.due_ms);
        self.handle(ReminderEvent::Noted { slot, due_ms });
    }

    /// Handles an event and everything that follows from it.
    fn handle(&mut self, event: ReminderEvent) {
        let mut events = vec![event];
        let mut pending = Vec::new();
        loop {
            let mut commands = Vec::new();
            for event in events.drain(..) {
                self.machine.handle(self.now, self.wall_ms, event, &mut commands);
            }
            for command in commands {
                match command {
                    ReminderCommand::Scan { names, limit } => events.push(self.scan(names, limit)),
                    ReminderCommand::Deliver(row) => pending.push(row),
                }
            }
            self.most_at_once = self.most_at_once.max(pending.len());
            // Deliveries complete as late as possible, when no other event is pending.
            if events.is_empty() {
                let Some(row) = pending.pop() else { return };
                let how = self.deliver(&row);
                events.push(ReminderEvent::Delivered { row, how });
            }
        }
    }

    fn scan(&mut self, names: Range<Bytes>, limit: u32) -> ReminderEvent {
        self.scans += 1;
        let mut found = self.rows.range(names);
        let page = found.by_ref().take(limit as usize);
        let page: Vec<_> = page.map(|(name, row)| (name.clone(), row.slot)).collect();
        let more = found.next().is_some();
        let rows = match page.iter().any(|(_, slot)| Some(*slot) == self.damaged) {
            true => Err(()),
            false => Ok(page.into_iter().map(|(name, _)| name).collect()),
        };
        ReminderEvent::Scanned { rows, more }
    }

    fn deliver(&mut self, row: &DueRow) -> DeliveryResult {
        assert!(row.due_ms <= self.wall_ms, "delivered too early: {row:?}");
        self.delivered.entry(row.clone()).or_default().push(self.wall_ms);
        if let Some(left) = self.failures.get_mut(row).filter(|left| **left > 0) {
            *left -= 1;
            return DeliveryResult::Failed;
        }
        self.rows.remove(&row.key().name);
        DeliveryResult::Over
    }

    /// Advances both clocks.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        let mut ticks = 0;
        while let Some(at) = self.machine.next_timer().filter(|at| *at <= end) {
            ticks += 1;
            assert!(ticks < 100_000, "the state machine busy-loops");
            self.advance(at.max(self.now));
            self.handle(ReminderEvent::Tick);
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Time) {
        self.wall_ms += u64::try_from(to.since(self.now).as_millis()).unwrap();
        self.now = to;
    }

    fn deliveries(&self, row: &DueRow) -> usize {
        self.delivered.get(row).map_or(0, Vec::len)
    }
}

#[test]
fn a_noted_reminder_is_delivered_once_and_on_time() {
    let mut world = World::new(Slot::all());
    let early = world.set(1, 500);
    let later = world.set(2, 90_000);
    world.pass(SECOND);
    assert_eq!(world.delivered[&early], [early.due_ms]);
    world.pass(SECOND * 120);
    assert_eq!(world.deliveries(&later), 1);
    assert!(world.delivered[&later][0] - later.due_ms < 10);
    assert_eq!(world.delivered.len(), 2);
    assert!(world.rows.is_empty());
}

#[test]
fn an_unnoted_reminder_is_found_by_the_sweep() {
    let mut world = World::new(Slot::all());
    world.pass(SECOND * 25);
    let row = world.write(1, "ring", 500);
    world.pass(SECOND * 12);
    assert_eq!(world.deliveries(&row), 1);
    assert!(world.delivered[&row][0] - row.due_ms <= 11_000);
}

#[test]
fn slots_without_due_rows_are_rarely_scanned() {
    let mut world = World::new(Slot::all());
    world.set(1, 1_000_000);
    let before = world.scans;
    world.pass(SECOND * 100);
    assert!(world.scans - before <= 30, "{} scans in 100 s", world.scans - before);
}

#[test]
fn a_new_owner_delivers_overdue_rows_of_its_own_slots_only() {
    let mut world = World::new([]);
    let rows: Vec<DueRow> = (0..100).map(|actor| world.set(actor, -5)).collect();
    world.pass(SECOND);
    assert!(world.delivered.is_empty());
    let is_even = |slot: &Slot| slot.index().is_multiple_of(2);
    world.handle(ReminderEvent::Slots(Slot::all().filter(is_even).collect()));
    // The sweep scans one slot at a time, with a pause after each.
    world.pass(SECOND * 25);
    let delivered: BTreeSet<&DueRow> = world.delivered.keys().collect();
    let expected: BTreeSet<&DueRow> = rows.iter().filter(|row| is_even(&row.slot)).collect();
    assert_eq!(delivered, expected);
    world.handle(ReminderEvent::Slots(BTreeSet::new()));
    assert_eq!(world.machine.next_timer(), None, "without slots there is nothing to do");
}

#[test]
fn concurrent_deliveries_are_bounded() {
    let mut world = World::new(Slot::all());
    for actor in 0..5_000 {
        let row = world.write(actor, "ring", 1000);
        if actor % 3 == 0 {
            world.note(&row);
        }
    }
    world.pass(SECOND * 60);
    assert_eq!(world.delivered.len(), 5_000);
    assert!(world.delivered.values().all(|times| times.len() == 1));
    assert!(world.most_at_once <= DELIVERIES_MAX, "{}", world.most_at_once);
}

#[test]
fn many_reminders_of_one_actor_are_all_delivered() {
    let mut world = World::new(Slot::all());
    for number in 0..1000 {
        world.write(1, &number.to_string(), 1000 + number % 7);
    }
    let first = world.set(1, 999);
    world.pass(SECOND * 2);
    assert_eq!(world.deliveries(&first), 1);
    assert_eq!(world.delivered.len(), 1001);
}

#[test]
fn failed_deliveries_back_off_and_do_not_block_others() {
    let mut world = World::new(Slot::all());
    let failing: Vec<DueRow> = (0..300)
        .map(|number| world.write(1, &format!("{number}"), 100))
        .collect();
    world.failures = failing.iter().map(|row| (row.clone(), 6)).collect();
    let good = world.write(1, "ring", 200);
    world.note(&failing[0]);
    world.pass(SECOND * 2);
    assert_eq!(world.deliveries(&good), 1, "300 failing rows precede it");
    world.pass(SECOND * 60);
    for row in &failing {
        assert_eq!(world.deliveries(row), 7);
        let pauses: Vec<u64> = world.delivered[row].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    }
    assert!(world.rows.is_empty());
}

#[test]
fn a_clock_set_back_delays_reminders_and_loses_none() {
    let mut world = World::new(Slot::all());
    let row = world.set(1, 10_000);
    world.pass(SECOND * 5);
    world.wall_ms -= 3_600_000;
    let meanwhile = world.set(2, 1000);
    world.pass(SECOND * 3000);
    assert_eq!(world.deliveries(&meanwhile), 1);
    assert_eq!(world.deliveries(&row), 0, "it is not due on the adjusted clock");
    world.pass(SECOND * 700);
    assert_eq!(world.deliveries(&row), 1);
}

#[test]
fn a_clock_set_forward_is_detected_within_a_second() {
    let mut world = World::new(Slot::all());
    let row = world.set(1, 3_600_000);
    world.pass(SECOND);
    world.wall_ms += 3_600_000;
    world.pass(SECOND + SECOND / 10);
    assert_eq!(world.deliveries(&row), 1);
}

#[test]
fn a_damaged_row_affects_only_its_own_slot() {
    let mut world = World::new([]);
    let bad = world.write(1, "ring", -5);
    world.damaged = Some(bad.slot);
    let others: Vec<DueRow> = (2..200).map(|actor| world.write(actor, "ring", -5)).collect();
    world.handle(ReminderEvent::Slots(Slot::all().collect()));
    // After the failure the sweep scans slot by slot.
    world.pass(SECOND * (SLOT_COUNT as u32 / 100));
    let delivered = |row: &&DueRow| world.deliveries(row) > 0;
    let in_other_slots = others.iter().filter(|row| row.slot != bad.slot);
    assert_eq!(in_other_slots.filter(|row| !delivered(row)).count(), 0);
    assert_eq!(world.deliveries(&bad), 0);
    world.damaged = None;
    world.pass(SECOND * 60);
    assert_eq!(world.deliveries(&bad), 1);
}
