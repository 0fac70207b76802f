//! State machine of a slot owner's reminders: finds due rows, schedules scans and limits concurrent deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use elastin_types::Time;

use super::pace::Pace;
use super::row::{DueRow, millis, slot_range};
use crate::{SLOT_COUNT, Slot};

/// The most concurrent deliveries. A delivery takes about as long as a call.
const DELIVERIES_MAX: usize = 64;

/// The most failed deliveries that are tracked for retry. The next scan of their slot finds the others again.
const FAILED_MAX: usize = 1024;

/// Page size of a scan.
const SCAN_ROWS: u32 = 128;

/// Pause before a failed scan is retried.
const SCAN_RETRY: Duration = Duration::from_secs(1);

/// The first and the longest pause before a failed delivery is retried; it doubles in between.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Input of [`Reminders`].
#[derive(Clone, Debug, PartialEq)]
pub enum ReminderEvent {
    /// This node now owns exactly these slots.
    Slots(BTreeSet<Slot>),
    /// A reminder was set.
    Noted {
        /// The actor's slot.
        slot: Slot,
        /// When it is due, in milliseconds since the Unix epoch.
        due_ms: u64,
    },
    /// The requested scan has completed.
    Scanned {
        /// The names of the rows, in order; an error if the scan failed.
        rows: Result<Vec<Bytes>, ()>,
        /// The range has more rows.
        more: bool,
    },
    /// A delivery has completed.
    Delivered {
        /// The row.
        row: DueRow,
        /// Its outcome.
        how: DeliveryResult,
    },
    /// The [`Reminders::next_timer`] has expired. Early and repeated ticks are harmless.
    Tick,
}

/// Outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The actor has replied, or the row was stale: the row is removed.
    Over,
    /// The actor may not have received it: the delivery must be retried.
    Failed,
}

/// Output of [`Reminders`], for the driver to execute.
#[derive(Clone, Debug, PartialEq)]
pub enum ReminderCommand {
    /// Scan the system rows in this range of names. Reply with [`ReminderEvent::Scanned`]; one scan runs at a time.
    Scan {
        /// The names.
        names: Range<Bytes>,
        /// The most rows wanted.
        limit: u32,
    },
    /// Deliver the reminder if the entry still matches the row. Then remove the row, or reschedule a periodic reminder.
    /// Reply with [`ReminderEvent::Delivered`].
    Deliver(DueRow),
}

/// The reminders of the slots that a node owns.
#[derive(Debug, Default)]
pub struct Reminders {
    owned: BTreeSet<Slot>,
    /// The earliest known due time of each slot. The sweep finds the others.
    earliest: BTreeMap<Slot, u64>,
    /// The same, by time.
    by_time: BTreeSet<(u64, Slot)>,
    delivering: BTreeSet<DueRow>,
    failed: BTreeMap<DueRow, Retry>,
    scan: Option<Scan>,
    /// Slot and cursor at which a single-slot scan continues.
    resume_at: Option<(Slot, Bytes)>,
    sweep: Sweep,
    next_timer: Option<Time>,
    pace: Pace,
}

/// Retry state of a failed delivery.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Time,
    pause: Duration,
}

/// The scan in flight.
#[derive(Debug)]
struct Scan {
    slots: Range<usize>,
    /// Whether it is part of a sweep, not a single-slot scan.
    sweeps: bool,
    /// Due times noted since it started: the scan may have missed them.
    noted: BTreeMap<Slot, u64>,
}

/// Progress of the sweep over all slots.
#[derive(Debug, Default)]
struct Sweep {
    began: Time,
    /// Earliest time of its next scan.
    resumes: Time,
    /// The next slot.
    slot: usize,
    /// Cursor within that slot, if not at its beginning.
    after: Option<Bytes>,
    /// Scans one slot at a time after a multi-slot scan failed, so that a damaged row affects one slot only.
    narrow: bool,
}

impl Reminders {
    /// The reminders of a node that owns no slot yet.
    pub fn at_pace(pace: Pace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    /// Handles an event at this monotonic and wall-clock time, and appends the resulting commands.
    pub fn handle(&mut self, now: Time, wall_ms: u64, event: ReminderEvent, commands: &mut Vec<ReminderCommand>) {
        match event {
            ReminderEvent::Slots(slots) => self.own(now, slots),
            ReminderEvent::Noted { slot, due_ms } => self.note(slot, due_ms),
            ReminderEvent::Scanned { rows, more } => self.scanned(now, wall_ms, rows, more, commands),
            ReminderEvent::Delivered { row, how } => self.delivered(now, row, how),
            ReminderEvent::Tick => {}
        }
        self.retry_failed(now, commands);
        self.start_next_scan(now, wall_ms, commands);
        self.next_timer = self.timer(now, wall_ms);
    }

    /// When the driver must send the next [`ReminderEvent::Tick`].
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
        self.resume_at.take_if(|(slot, _)| !self.owned.contains(slot));
    }

    /// Records a due time of a slot, if it is earlier than the known one.
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

    fn delivered(&mut self, now: Time, row: DueRow, how: DeliveryResult) {
        self.delivering.remove(&row);
        let before = self.failed.remove(&row);
        if how == DeliveryResult::Failed && self.owned.contains(&row.slot) && self.failed.len() < FAILED_MAX {
            let pause = before.map_or(RETRY_MIN, |before| (before.pause * 2).min(RETRY_MAX));
            let at = now + pause;
            self.failed.insert(row, Retry { at, pause });
        }
    }

    /// Retries the failed deliveries whose pause is over.
    fn retry_failed(&mut self, now: Time, commands: &mut Vec<ReminderCommand>) {
        let due =
            |(row, retry): (&DueRow, &Retry)| (retry.at <= now && !self.delivering.contains(row)).then(|| row.clone());
        let room = DELIVERIES_MAX - self.delivering.len();
        let again: Vec<DueRow> = self.failed.iter().filter_map(due).take(room).collect();
        for row in again {
            self.deliver(row, commands);
        }
    }

    fn deliver(&mut self, row: DueRow, commands: &mut Vec<ReminderCommand>) {
        self.delivering.insert(row.clone());
        commands.push(ReminderCommand::Deliver(row));
    }

    /// Starts the next scan, if any: a slot with due rows first, else the sweep.
    fn start_next_scan(&mut self, now: Time, wall_ms: u64, commands: &mut Vec<ReminderCommand>) {
        if self.scan.is_some() || !self.has_room() {
            return;
        }
        if let Some((slot, after)) = self.resume_at.take() {
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
                // The cursor is valid only in its own slot.
                let after = self.sweep.after.take().filter(|_| slots.start == self.sweep.slot);
                self.start_scan(slots, after, true, commands);
            }
            None => self.end_sweep(now),
        }
    }

    /// Whether so few deliveries are in flight that a scan for more is worthwhile.
    fn has_room(&self) -> bool {
        self.delivering.len() <= DELIVERIES_MAX / 2
    }

    /// The first contiguous run of owned slots at or after this one.
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
            // The immediate successor of `after` in byte order.
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
            Ok(rows) => self.process_rows(wall_ms, &rows, &scan, more, commands),
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

    /// Handles a failed scan. The sweep finds the rows that a failed single-slot scan missed.
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

    /// Processes the rows of a scan, slot by slot: delivers due rows and records each slot's next due time.
    fn process_rows(
        &mut self,
        wall_ms: u64,
        names: &[Bytes],
        scan: &Scan,
        more: bool,
        commands: &mut Vec<ReminderCommand>,
    ) {
        let rows: Vec<DueRow> = names.iter().filter_map(|name| DueRow::parse(name)).collect();
        let mut slot = scan.slots.start;
        let mut is_open = false;
        for of_slot in rows.chunk_by(|one, other| one.slot == other.slot) {
            let current = of_slot[0].slot;
            // The slots in between have no rows.
            (slot..current.index()).for_each(|empty| self.set_earliest(Slot::new(empty), None));
            slot = current.index() + 1;
            let next = self.deliver_due(wall_ms, of_slot, commands);
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
            Some((last, name)) if is_open => self.resume_at = Some((last, name.clone())),
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

    /// Delivers the due rows of one slot. Returns the due time of the first row left over, if any.
    fn deliver_due(&mut self, wall_ms: u64, rows: &[DueRow], commands: &mut Vec<ReminderCommand>) -> Option<u64> {
        for row in rows {
            if row.due_ms > wall_ms {
                return Some(row.due_ms);
            }
            if self.delivering.contains(row) || self.failed.contains_key(row) || !self.owned.contains(&row.slot) {
                continue;
            }
            if self.delivering.len() == DELIVERIES_MAX {
                return Some(row.due_ms);
            }
            self.deliver(row.clone(), commands);
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
        let retries = self.failed.iter().filter(|(row, _)| !self.delivering.contains(*row));
        let retry = retries
            .map(|(_, retry)| retry.at)
            .min()
            .filter(|_| self.delivering.len() < DELIVERIES_MAX);
        let due = self.by_time.first().map(|(due_ms, _)| due_ms.saturating_sub(wall_ms));
        let due = due.map(|wait_ms| now + Duration::from_millis(wait_ms.min(millis(self.pace.clock_look))));
        // A pending scan or delivery starts the next scan when it completes, so no timer is needed for that.
        let waits = self.scan.is_some() || !self.has_room();
        let scans = [due, Some(self.sweep.resumes)].into_iter().flatten().filter(|_| !waits);
        scans.chain(retry).min()
    }
}
