//! Placement of new actors: requested from the global manager that replied last, with a local fallback on timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::Time;

use super::event::LemCommand;
use super::propose::Reporting;
use super::server::OwnServer;
use crate::context::Context;
use crate::place::Placer;
use crate::{ControlMessage, NewActor, Placement};

/// Timeout of a placement request; the new actor's first caller waits for it.
const PLACE_LIMIT: Duration = Duration::from_millis(100);

/// Maximum number of pending placements; further actors are placed immediately with local knowledge.
const PLACING_MAX: usize = 1_024;

/// The new actors that wait for a placement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placing {
    open: BTreeMap<u64, Waiting>,
    placer: Placer,
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

    /// Forgets the actors placed before the present digests arrived.
    pub(crate) fn forget_placed(&mut self) {
        self.placer = Placer::default();
    }

    /// Places a new actor with local knowledge only; `None` if no server that accepts actors is known.
    pub(crate) fn place(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        reporting: &Reporting,
        new: &NewActor,
    ) -> Option<Placement> {
        let mut servers = reporting.known().to_vec();
        if let Some(own) = server.digest(context) {
            servers.retain(|digest| digest.server.node != context.node);
            servers.push(own);
        }
        self.placer.place(context, &servers, new)
    }

    /// Asks the global manager for a server.
    pub(crate) fn ask(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        reporting: &Reporting,
        request: u64,
        new: NewActor,
        out: &mut Vec<LemCommand>,
    ) {
        let Some(global) = reporting.last_global().filter(|_| self.open.len() < PLACING_MAX) else {
            let placement = self.place(context, server, reporting, &new);
            out.push(LemCommand::Placed { request, placement });
            return;
        };
        let number = context.number();
        let waiting = Waiting {
            request,
            new: new.clone(),
            until: context.now + PLACE_LIMIT,
        };
        self.open.insert(number, waiting);
        out.push(LemCommand::send(global, ControlMessage::Place { request: number, new }));
    }

    /// Handles the global manager's reply.
    pub(crate) fn receive(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        reporting: &Reporting,
        number: u64,
        placement: Option<Placement>,
        out: &mut Vec<LemCommand>,
    ) {
        let Some(Waiting { request, new, .. }) = self.open.remove(&number) else {
            return;
        };
        let placement = placement.or_else(|| self.place(context, server, reporting, &new));
        out.push(LemCommand::Placed { request, placement });
    }

    /// Places actors whose request timed out.
    pub(crate) fn expire(
        &mut self,
        context: &mut Context,
        server: &OwnServer,
        reporting: &Reporting,
        out: &mut Vec<LemCommand>,
    ) {
        let is_late = |_: &u64, waiting: &mut Waiting| waiting.until <= context.now;
        let late: Vec<Waiting> = self.open.extract_if(.., is_late).map(|(_, waiting)| waiting).collect();
        for Waiting { request, new, .. } in late {
            let placement = self.place(context, server, reporting, &new);
            out.push(LemCommand::Placed { request, placement });
        }
    }
}
