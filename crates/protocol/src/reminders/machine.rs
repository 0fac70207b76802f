//! What a slot's owner does about reminders: which are due, when to look again, how many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use elastin_types::Time;

use super::pace::Pace;
use super::row::{DueRow, millis, slot_range};
use crate::{SLOT_COUNT, Slot};

/// How many reminders are told at the same time. A telling takes about as long as a call.
const TELLING_MAX: usize = 64;

/// How many reminders whose telling failed are remembered. Those beyond are met again when their slot is looked at.
const FAILED_MAX: usize = 1024;

/// How many rows one scan asks for.
const SCAN_ROWS: u32 = 128;

/// How long until a scan that failed is tried again.
const SCAN_RETRY: Duration = Duration::from_secs(1);

/// The first and the longest pause before a failed telling is tried again; it doubles between.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ReminderEvent {
    /// The slots that this node owns now.
    Slots(BTreeSet<Slot>),
    /// A reminder was set.
    Noted {
        /// The actor's slot.
        slot: Slot,
        /// When it is due, in milliseconds since the Unix epoch.
        due_ms: u64,
    },
    /// The scan that was asked for has ended.
    Scanned {
        /// The names of the rows, in order; an error if there is no telling what there is.
        rows: Result<Vec<Bytes>, ()>,
        /// There are more in the range.
        more: bool,
    },
    /// A telling has ended.
    Told {
        /// The row.
        row: DueRow,
        /// How.
        how: Told,
    },
    /// The time that [`Reminders::next_timer`] named has come. Too early or too often does no harm.
    Tick,
}

/// How a telling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The actor has answered, or there was nothing to tell: the row is gone.
    Over,
    /// It may not have been told: it must be told again.
    Failed,
}

/// Something for the driver to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ReminderCommand {
    /// Scan the system's rows in this range of names. Answer with [`ReminderEvent::Scanned`]; there is one scan at a time.
    Scan {
        /// The names.
        names: Range<Bytes>,
        /// The most rows wanted.
        limit: u32,
    },
    /// Look whether the entry says the same, tell the actor, and then remove the row, or leave the reminder at its next due
    /// time. Answer with [`ReminderEvent::Told`].
    Tell(DueRow),
}

/// The reminders of the slots that a node owns.
#[derive(Debug, Default)]
pub struct Reminders {
    owned: BTreeSet<Slot>,
    /// The earliest due time that is known of a slot. What is not here is found by a sweep.
    earliest: BTreeMap<Slot, u64>,
    /// The same, by time.
    by_time: BTreeSet<(u64, Slot)>,
    telling: BTreeSet<DueRow>,
    failed: BTreeMap<DueRow, Retry>,
    scan: Option<Scan>,
    /// Where a look at one slot goes on.
    looking: Option<(Slot, Bytes)>,
    sweep: Sweep,
    next_timer: Option<Time>,
    pace: Pace,
}

/// When a failed telling is tried again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Time,
    pause: Duration,
}

/// A scan that is under way.
#[derive(Debug)]
struct Scan {
    slots: Range<usize>,
    /// Whether it is part of a sweep, or a look at one slot.
    sweeps: bool,
    /// What was noted meanwhile: the scan may not have seen it.
    noted: BTreeMap<Slot, u64>,
}

/// Where the sweep over all slots is.
#[derive(Debug, Default)]
struct Sweep {
    began: Time,
    /// When its next scan may be.
    resumes: Time,
    /// The next slot.
    slot: usize,
    /// Where in that slot, if not at its beginning.
    after: Option<Bytes>,
    /// A scan of several slots has failed: they are looked at one by one, so that a damaged row costs one slot only.
    narrow: bool,
}

impl Reminders {
    /// Those of a node that owns no slot yet.
    pub fn at_pace(pace: Pace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    /// Takes in an event at this time, on the process's own clock and on the wall's, and says what to do.
    pub fn handle(&mut self, now: Time, wall_ms: u64, event: ReminderEvent, commands: &mut Vec<ReminderCommand>) {
        match event {
            ReminderEvent::Slots(slots) => self.own(now, slots),
            ReminderEvent::Noted { slot, due_ms } => self.note(slot, due_ms),
            ReminderEvent::Scanned { rows, more } => self.scanned(now, wall_ms, rows, more, commands),
            ReminderEvent::Told { row, how } => self.told(now, row, how),
            ReminderEvent::Tick => {}
        }
        self.tell_again(now, commands);
        self.look(now, wall_ms, commands);
        self.next_timer = self.timer(now, wall_ms);
    }

    /// When it wants to be told that time has passed.
    pub fn next_timer(&self) -> Option<Time> {
        self.next_timer
    }

    fn own(&mut self, now: Time, slots: BTreeSet<Slot>) {
        if !slots.is_subset(&self.owned) {
            self.sweep = Sweep {
                began: now,
                resumes: now,
                ..Sweep::default()
            };
        }
        self.owned = slots;
        self.earliest.retain(|slot, _| self.owned.contains(slot));
        self.by_time.retain(|(_, slot)| self.owned.contains(slot));
        self.failed.retain(|row, _| self.owned.contains(&row.slot));
        self.looking.take_if(|(slot, _)| !self.owned.contains(slot));
    }

    /// Remembers when to look at a slot, if that is earlier than what is known.
    fn note(&mut self, slot: Slot, due_ms: u64) {
        if let Some(scan) = &mut self.scan
            && scan.slots.contains(&slot.index())
        {
            let noted = scan.noted.entry(slot).or_insert(due_ms);
            *noted = due_ms.min(*noted);
        }
        if self.owned.contains(&slot) && self.earliest.get(&slot).is_none_or(|known| due_ms < *known) {
            self.set_earliest(slot, Some(due_ms));
        }
    }

    fn set_earliest(&mut self, slot: Slot, due_ms: Option<u64>) {
        if let Some(known) = self.earliest.remove(&slot) {
            self.by_time.remove(&(known, slot));
        }
        if let Some(due_ms) = due_ms {
            self.earliest.insert(slot, due_ms);
            self.by_time.insert((due_ms, slot));
        }
    }

    fn told(&mut self, now: Time, row: DueRow, how: Told) {
        self.telling.remove(&row);
        let before = self.failed.remove(&row);
        if how == Told::Failed && self.owned.contains(&row.slot) && self.failed.len() < FAILED_MAX {
            let pause = before.map_or(RETRY_MIN, |before| (before.pause * 2).min(RETRY_MAX));
            let at = now + pause;
            self.failed.insert(row, Retry { at, pause });
        }
    }

    /// Tells what failed before and may be tried again.
    fn tell_again(&mut self, now: Time, commands: &mut Vec<ReminderCommand>) {
        let due =
            |(row, retry): (&DueRow, &Retry)| (retry.at <= now && !self.telling.contains(row)).then(|| row.clone());
        let room = TELLING_MAX - self.telling.len();
        let again: Vec<DueRow> = self.failed.iter().filter_map(due).take(room).collect();
        for row in again {
            self.tell(row, commands);
        }
    }

    fn tell(&mut self, row: DueRow, commands: &mut Vec<ReminderCommand>) {
        self.telling.insert(row.clone());
        commands.push(ReminderCommand::Tell(row));
    }

    /// Starts a scan if there is a reason for one: a slot in which something is due, else the sweep.
    fn look(&mut self, now: Time, wall_ms: u64, commands: &mut Vec<ReminderCommand>) {
        if self.scan.is_some() || !self.has_room() {
            return;
        }
        if let Some((slot, after)) = self.looking.take() {
            let slots = slot.index()..slot.index() + 1;
            return self.start_scan(slots, Some(after), false, commands);
        }
        if let Some((due_ms, slot)) = self.by_time.first()
            && *due_ms <= wall_ms
        {
            let slots = slot.index()..slot.index() + 1;
            return self.start_scan(slots, None, false, commands);
        }
        if self.sweep.resumes > now {
            return;
        }
        match self.next_run(self.sweep.slot) {
            Some(mut slots) => {
                if self.sweep.narrow {
                    slots.end = slots.start + 1;
                }
                // A cursor counts only in the slot that it was left in.
                let after = self.sweep.after.take().filter(|_| slots.start == self.sweep.slot);
                self.start_scan(slots, after, true, commands);
            }
            None => self.end_sweep(now),
        }
    }

    /// Whether so few are being told that a scan for more is worth it.
    fn has_room(&self) -> bool {
        self.telling.len() <= TELLING_MAX / 2
    }

    /// The owned slots from this one on that follow each other without a gap.
    fn next_run(&self, from: usize) -> Option<Range<usize>> {
        if from >= SLOT_COUNT {
            return None;
        }
        let mut owned = self.owned.range(Slot::new(from)..).map(|slot| slot.index());
        let start = owned.next()?;
        let end = owned.fold(start + 1, |end, slot| if slot == end { end + 1 } else { end });
        Some(start..end)
    }

    fn start_scan(
        &mut self,
        slots: Range<usize>,
        after: Option<Bytes>,
        sweeps: bool,
        commands: &mut Vec<ReminderCommand>,
    ) {
        let mut names = slot_range(slots.clone());
        if let Some(after) = after {
            // The smallest name that is larger.
            names.start = [&after[..], &[0]].concat().into();
        }
        self.scan = Some(Scan {
            slots,
            sweeps,
            noted: BTreeMap::new(),
        });
        let limit = SCAN_ROWS;
        commands.push(ReminderCommand::Scan { names, limit });
    }

    fn scanned(
        &mut self,
        now: Time,
        wall_ms: u64,
        rows: Result<Vec<Bytes>, ()>,
        more: bool,
        commands: &mut Vec<ReminderCommand>,
    ) {
        let Some(scan) = self.scan.take() else { return };
        let rows_known = rows.is_ok();
        match rows {
            Ok(rows) => self.take_in(wall_ms, &rows, &scan, more, commands),
            Err(()) => self.scan_failed(&scan),
        }
        if scan.sweeps {
            let pause = if rows_known { self.pace.sweep_pause } else { SCAN_RETRY };
            self.sweep.resumes = now + pause;
        }
        for (slot, due_ms) in scan.noted {
            self.note(slot, due_ms);
        }
    }

    /// What a failed look at one slot has not seen, the sweep finds.
    fn scan_failed(&mut self, scan: &Scan) {
        if !scan.sweeps {
            self.set_earliest(Slot::new(scan.slots.start), None);
        } else if scan.slots.len() > 1 {
            self.sweep.narrow = true;
            self.sweep.slot = scan.slots.start;
        } else {
            self.sweep.slot = scan.slots.end;
        }
    }

    /// Takes in the rows of a scan, slot by slot: tells what is due, and remembers when each slot is to be looked at.
    fn take_in(&mut self, wall_ms: u64, names: &[Bytes], scan: &Scan, more: bool, commands: &mut Vec<ReminderCommand>) {
        let rows: Vec<DueRow> = names.iter().filter_map(|name| DueRow::parse(name)).collect();
        let mut slot = scan.slots.start;
        let mut is_open = false;
        for of_slot in rows.chunk_by(|one, other| one.slot == other.slot) {
            let current = of_slot[0].slot;
            // Those between have no rows.
            (slot..current.index()).for_each(|empty| self.set_earliest(Slot::new(empty), None));
            slot = current.index() + 1;
            let next = self.tell_due(wall_ms, of_slot, commands);
            is_open = next.is_none();
            self.set_earliest(current, next);
        }
        let last = rows.last().map(|row| row.slot).zip(names.last());
        match last.filter(|_| more) {
            // All rows of the last slot were due: there may be more behind them.
            Some((last, name)) if is_open && scan.sweeps => {
                self.sweep.slot = last.index();
                self.sweep.after = Some(name.clone());
            }
            Some((last, name)) if is_open => self.looking = Some((last, name.clone())),
            Some(_) if scan.sweeps => self.sweep.slot = slot,
            Some(_) => {}
            None => {
                (slot..scan.slots.end).for_each(|empty| self.set_earliest(Slot::new(empty), None));
                if scan.sweeps {
                    self.sweep.slot = scan.slots.end;
                }
            }
        }
    }

    /// Tells what is due of one slot's rows; gives the first due time for which the slot must be looked at again.
    fn tell_due(&mut self, wall_ms: u64, rows: &[DueRow], commands: &mut Vec<ReminderCommand>) -> Option<u64> {
        for row in rows {
            if row.due_ms > wall_ms {
                return Some(row.due_ms);
            }
            if self.telling.contains(row) || self.failed.contains_key(row) || !self.owned.contains(&row.slot) {
                continue;
            }
            if self.telling.len() == TELLING_MAX {
                return Some(row.due_ms);
            }
            self.tell(row.clone(), commands);
        }
        None
    }

    fn end_sweep(&mut self, now: Time) {
        let began = (self.sweep.began + self.pace.sweep_every).max(now + self.pace.sweep_pause);
        self.sweep = Sweep {
            began,
            resumes: began,
            ..Sweep::default()
        };
    }

    fn timer(&self, now: Time, wall_ms: u64) -> Option<Time> {
        if self.owned.is_empty() {
            return None;
        }
        let retries = self.failed.iter().filter(|(row, _)| !self.telling.contains(*row));
        let retry = retries
            .map(|(_, retry)| retry.at)
            .min()
            .filter(|_| self.telling.len() < TELLING_MAX);
        let due = self.by_time.first().map(|(due_ms, _)| due_ms.saturating_sub(wall_ms));
        let due = due.map(|wait_ms| now + Duration::from_millis(wait_ms.min(millis(self.pace.clock_look))));
        // What waits for a scan or for room is looked at when that event comes.
        let waits = self.scan.is_some() || !self.has_room();
        let looks = [due, Some(self.sweep.resumes)].into_iter().flatten().filter(|_| !waits);
        looks.chain(retry).min()
    }
}
