//! Placement of new actors: requested from the global manager that replied last, with a local fallback on timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::Time;

use super::Lem;
use super::event::LemCommand;
use crate::place::{Placed, place, place_blindly};
use crate::{ControlMessage, NewActor, Placement, ServerDigest};

/// Timeout of a placement request; the new actor's first caller waits for it.
const PLACE_LIMIT: Duration = Duration::from_millis(100);

/// Maximum number of pending placements; further actors are placed immediately with local knowledge.
const PLACING_MAX: usize = 1_024;

/// The new actors that wait for a placement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placing {
    open: BTreeMap<u64, Waiting>,
    /// Actors placed by this manager since the last digests arrived.
    pub(crate) placed: Placed,
}

#[derive(Clone, Debug)]
struct Waiting {
    request: u64,
    new: NewActor,
    until: Time,
}

impl Placing {
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.open.values().map(|waiting| waiting.until).min()
    }
}

impl Lem {
    /// Places a new actor with local knowledge only; `None` if no server that accepts actors is known.
    pub fn place(&mut self, new: &NewActor) -> Option<Placement> {
        let mut servers = self.known.clone();
        if let Some(own) = self.own_digest() {
            servers.retain(|digest| digest.server.node != self.node);
            servers.push(own);
        }
        let placement = place(&self.policy, &servers, &self.placing.placed, &mut self.random, new)
            .or_else(|| place_blindly(&self.members, &servers, &mut self.random))?;
        *self.placing.placed.entry(placement.node).or_default() += 1;
        Some(placement)
    }

    pub(super) fn ask_place(&mut self, now: Time, request: u64, new: NewActor, out: &mut Vec<LemCommand>) {
        let Some(global) = self.last_global.filter(|_| self.placing.open.len() < PLACING_MAX) else {
            let placement = self.place(&new);
            out.push(LemCommand::Placed { request, placement });
            return;
        };
        let number = self.number();
        let waiting = Waiting {
            request,
            new: new.clone(),
            until: now + PLACE_LIMIT,
        };
        self.placing.open.insert(number, waiting);
        out.push(LemCommand::Send {
            to: global,
            message: ControlMessage::Place { request: number, new },
        });
    }

    pub(super) fn receive_placed(&mut self, number: u64, placement: Option<Placement>, out: &mut Vec<LemCommand>) {
        let Some(waiting) = self.placing.open.remove(&number) else {
            return;
        };
        let placement = placement.or_else(|| self.place(&waiting.new));
        out.push(LemCommand::Placed {
            request: waiting.request,
            placement,
        });
    }

    pub(super) fn expire_placing(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        let late: Vec<u64> = self
            .placing
            .open
            .iter()
            .filter(|(_, waiting)| waiting.until <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.receive_placed(number, None, out);
        }
    }

    /// The digest of this server.
    fn own_digest(&self) -> Option<ServerDigest> {
        Some(ServerDigest {
            server: self.own_server()?,
            reserved: self
                .reservations
                .iter()
                .map(|reservation| reservation.actor.clone())
                .collect(),
            pinned: u32::try_from(self.relations.pins.len()).unwrap_or(u32::MAX),
            separated_kinds: self.separated_kinds(),
        })
    }
}
