//! Places for new actors: asked of the global manager that last answered, and chosen here when it does not in time.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::Time;

use super::Lem;
use super::event::LemCommand;
use crate::place::{Placed, place, place_blindly};
use crate::{ControlMessage, NewActor, Placement, ServerDigest};

/// How long a new actor, and with it its first caller, waits for the global manager's word.
const PLACE_LIMIT: Duration = Duration::from_millis(100);

/// How many new actors wait at a time; further ones are placed at once on what is known here.
const PLACING_MAX: usize = 1_024;

/// The new actors that wait for a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placing {
    open: BTreeMap<u64, Waiting>,
    /// Where this manager placed actors itself since it last heard of the servers.
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
    /// Chooses a place for a new actor on what this server knows, without asking anybody; `None` if it knows no server
    /// that takes actors.
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

    /// What this server would tell of itself.
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
