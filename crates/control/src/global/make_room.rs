//! Making room on dedicated servers: units that do not belong there have to leave.

use elastin_policy::Action;
use elastin_types::NodeId;

use super::Gem;
use super::event::GemCommand;
use super::provision::Wanted;
use super::room::{Terms, candidates_under};
use super::view::Server;
use crate::decision::best;
use crate::limits::separation_priority;
use crate::record::refuse;
use crate::{Change, Held, Proposal, Purpose, Refusal, Reservation, Unit};

impl Gem {
    /// The units on a dedicated server that do not belong there.
    pub(super) fn foreign_units(&self, server: &Server) -> Vec<Unit> {
        // Companions may arrive before the reserved actor and cannot be matched to it yet.
        let awaits = server.reservations.iter().any(|reservation| !reservation.arrived);
        let may_be_companion = |unit: &Unit| awaits && matches!(unit.held, Some(Held::Recent(_)));
        let units = server.report.units.iter();
        units
            .filter(|unit| !server.is_reserved_unit(unit) && !may_be_companion(unit))
            .cloned()
            .collect()
    }

    /// Moves all foreign units away from dedicated servers.
    pub(super) fn plan_room(&mut self, out: &mut Vec<GemCommand>) {
        let dedicated: Vec<NodeId> = self
            .view
            .servers
            .values()
            .filter(|server| server.is_open && server.is_reserved() && !server.is_draining())
            .map(Server::node)
            .collect();
        for node in dedicated {
            let server = self.view.get(node).expect("the node was taken from the view");
            let reservation = server.reservations[0].clone();
            let mut homeless = false;
            for unit in self.foreign_units(server) {
                homeless |= !self.make_room(node, &unit, &reservation, out);
            }
            if homeless && self.a_server_would_help() {
                let wanted = Wanted {
                    cause: Some(reservation.cause),
                    count: 1,
                    reserved: Some(reservation.actor),
                    keep: false,
                };
                self.add_servers(wanted, out);
                self.last_size_change = Some(self.context.now);
            }
        }
    }

    /// Whether the cluster may grow now and a new server would give the displaced units a target.
    fn a_server_would_help(&self) -> bool {
        let on_the_way = self.provisions.has_common();
        let has_empty = self.view.common().any(Server::is_empty);
        !on_the_way && !has_empty && self.may_grow() && !self.changed_recently()
    }

    /// Proposes a target for a unit that has to leave a dedicated server; `false` if there is none.
    fn make_room(&mut self, node: NodeId, unit: &Unit, reservation: &Reservation, out: &mut Vec<GemCommand>) -> bool {
        let priority = self.reserve_priority(reservation);
        if unit.held.as_ref().is_some_and(|held| held.holds_against(priority)) {
            return true;
        }
        let resource = reservation.resource;
        let named = Terms::named(&self.context.policy);
        let mut terms = vec![named, Terms::WHOLE];
        if separation_priority(&self.context.policy).is_some_and(|separate| priority > separate) {
            // The dedicated server must be cleared even if no server can keep the actors apart.
            terms.extend([named.together(), Terms::WHOLE.together()]);
        }
        if !reservation.arrived {
            // The server was chosen for the room left once the actor departs; until then, the others may be overfilled.
            terms.push(Terms::FORCED);
        }
        let candidates = candidates_under(&self.context.policy, &self.view, unit, node, resource, &terms);
        let to = best(&candidates);
        let change = Change::moving(
            unit.lead.clone(),
            node,
            to,
            Purpose::MakeRoom {
                reserved: reservation.actor.clone(),
            },
        );
        let decision = self
            .context
            .decision(Some(reservation.cause.clone()), change, candidates);
        if to.is_none() {
            refuse(decision, Refusal::NoServer, out);
            return false;
        }
        let proposal = Proposal {
            decision,
            priority,
            score: unit.used[resource],
            reservation: None,
        };
        self.propose(proposal, &unit.lead);
        true
    }

    fn reserve_priority(&self, reservation: &Reservation) -> i32 {
        let action = Action::Reserve {
            actor: reservation.actor.clone(),
            resource: reservation.resource,
        };
        self.context.policy.priority(reservation.cause.rule, &action)
    }
}
