//! The reservations of a server: the actors that it is dedicated to.

use elastin_types::{ActorId, Time};

use crate::settings::{RELEASE_PERIODS, RELEASE_USE};
use crate::{ReleaseReason, Reservation, Unit};

/// Maximum number of reserved actors that share a server.
const SHARED_MAX: usize = 64;

/// The reservations of one server. Several actors share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    reservation: Reservation,
    /// Consecutive periods in which its reason was gone.
    failing: u32,
    /// Deadline for the actor's arrival.
    awaited_until: Time,
}

/// Measured state of a reserved actor.
pub(crate) struct Reviewed {
    /// The actor's use of the resource it needs; `None` if it is not on this server.
    pub(crate) used: Option<f64>,
    /// Whether the part of the rule's condition that does not mention `server` holds.
    pub(crate) holds: bool,
}

impl Reservations {
    /// Dedicates the server to an actor that is there or arrives before the deadline.
    pub(crate) fn add(&mut self, reservation: Reservation, awaited_until: Time) {
        let has_space = self.entries.len() < SHARED_MAX;
        match self.entry(&reservation.actor) {
            Some(entry) => {
                entry.reservation.shares_with = reservation.shares_with;
                entry.awaited_until = awaited_until;
            }
            None if has_space => self.entries.push(Entry {
                reservation,
                failing: 0,
                awaited_until,
            }),
            None => {}
        }
    }

    /// Removes the reservation of an actor that has left or will not arrive.
    pub(crate) fn remove(&mut self, actor: &ActorId) -> Option<Reservation> {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.reservation.actor == *actor)?;
        let removed = self.entries.remove(index).reservation;
        self.forget_sharing(actor);
        Some(removed)
    }

    /// The reservation of this actor.
    pub(crate) fn get(&self, actor: &ActorId) -> Option<&Reservation> {
        self.iter().find(|reservation| reservation.actor == *actor)
    }

    /// The reservations of actors in a unit.
    pub(crate) fn in_unit(&self, unit: &Unit) -> impl Iterator<Item = &Reservation> {
        self.iter()
            .filter(|reservation| unit.actors.binary_search(&reservation.actor).is_ok())
    }

    /// All reservations of the server.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.entries.iter().map(|entry| &entry.reservation)
    }

    /// Whether the server has no reservation.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reviews all reservations at the end of a period and returns those that ended. A reservation ends when its reason
    /// is gone, or its actor has left or never arrived.
    pub(crate) fn review(
        &mut self,
        now: Time,
        measure: impl Fn(&Reservation) -> Reviewed,
    ) -> Vec<(Reservation, ReleaseReason)> {
        let mut ended = Vec::new();
        self.entries.retain_mut(|entry| {
            let reason = entry.review(now, &measure(&entry.reservation));
            ended.extend(reason.map(|reason| (entry.reservation.clone(), reason)));
            reason.is_none()
        });
        for (reservation, _) in &ended {
            self.forget_sharing(&reservation.actor);
        }
        ended
    }

    fn entry(&mut self, actor: &ActorId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.reservation.actor == *actor)
    }

    fn forget_sharing(&mut self, gone: &ActorId) {
        for entry in &mut self.entries {
            if entry.reservation.shares_with.as_ref() == Some(gone) {
                entry.reservation.shares_with = None;
            }
        }
    }
}

impl Entry {
    /// Why the reservation ends; `None` if it stays in force.
    fn review(&mut self, now: Time, reviewed: &Reviewed) -> Option<ReleaseReason> {
        let Some(used) = reviewed.used else {
            return match self.reservation.arrived {
                true => Some(ReleaseReason::Left),
                false => (now >= self.awaited_until).then_some(ReleaseReason::NeverCame),
            };
        };
        self.reservation.arrived = true;
        let needed = reviewed.holds && used >= RELEASE_USE * self.reservation.used;
        self.failing = if needed { 0 } else { self.failing + 1 };
        (self.failing >= RELEASE_PERIODS).then_some(ReleaseReason::Over)
    }
}
