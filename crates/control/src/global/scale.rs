//! The number of servers: grows when moves cannot bring all below the upper bound, shrinks when all are below the lower
//! one.

use elastin_types::{NodeId, Resource, ServerState};

use super::Gem;
use super::balance::{Rule, share};
use super::event::GemCommand;
use super::room::{Terms, others_have_room};
use super::view::Server;
use crate::record::{record, refuse};
use crate::settings::RELEASE_PERIODS;
use crate::{Cause, Change, Direction, Outcome, Refusal, Unit};

impl Gem {
    /// Requests servers if some stay above the upper bound after all planned moves.
    pub(super) fn plan_growth(&mut self, rule: &Rule, out: &mut Vec<GemCommand>) {
        let Some(fullest) = self.still_over(rule) else { return };
        let cause = rule.cause(fullest).cloned();
        let count = self.missing_servers(rule);
        match self.objection_to_growth(rule, fullest) {
            Some(refusal) => self.refuse_growth(cause, count, refusal, out),
            None => {
                let room = self.context.settings.servers_max - self.size();
                self.ask_others(rule.index, Direction::Grow, cause, count.min(room), None, out);
            }
        }
    }

    /// The fullest server that stays above the upper bound after all planned moves.
    pub(super) fn still_over(&self, rule: &Rule) -> Option<NodeId> {
        self.view
            .common()
            .filter(|server| server.is_open && !server.report.unsettled && self.is_over(rule, server))
            .filter_map(|server| Some((server.percent(rule.resource())?, server.node())))
            .filter(|(percent, _)| *percent > rule.limit)
            .max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)))
            .map(|(_, node)| node)
    }

    fn objection_to_growth(&self, rule: &Rule, fullest: NodeId) -> Option<Refusal> {
        let on_the_way = self.provisions.has_common() || self.has_silent_member();
        if on_the_way {
            return Some(Refusal::AwaitingServer);
        }
        if self.pending_vote.is_some() || self.changed_recently() {
            return Some(Refusal::SizeChangedRecently);
        }
        if !self.may_grow() {
            return Some(Refusal::AtMaximum);
        }
        let helps = self.relief_by_empty_server(rule, fullest)? >= self.context.settings.noise_margin;
        (!helps).then_some(Refusal::SizeDoesNotHelp)
    }

    /// The best relief that an empty server could give to this one, in percentage points. It is zero where one unit
    /// fills the server alone, or nothing may move.
    fn relief_by_empty_server(&self, rule: &Rule, node: NodeId) -> Option<f64> {
        let server = self.view.get(node)?;
        let percent = server.percent(rule.resource())?;
        let (mut movable, mut largest) = (0.0, 0.0_f64);
        for unit in self.movable(rule, server) {
            let part = share(server, unit, rule.resource());
            movable += part;
            largest = largest.max(part);
        }
        let at_best = (percent / 2.0).max(largest).max(percent - movable);
        Some(percent - at_best)
    }

    /// Whether a server has joined but not reported: the load it will take is unknown.
    fn has_silent_member(&self) -> bool {
        // With several global managers, servers may report to others; then only pending servers are known.
        let alone = self.context.members.iter().filter(|member| member.global).count() <= 1;
        alone
            && self
                .context
                .members
                .iter()
                .any(|member| member.hosts && self.view.get(member.node).is_none())
    }

    pub(super) fn changed_recently(&self) -> bool {
        self.last_size_change
            .is_some_and(|change| self.context.now.since(change) < self.context.settings.period)
    }

    /// Number of servers needed to bring the demand below the upper bound: at least one, at most the current number,
    /// and at most the number of units that could move there.
    fn missing_servers(&self, rule: &Rule) -> u32 {
        let resource = rule.resource();
        let servers: Vec<&Server> = self.view.common().collect();
        let demand: f64 = servers.iter().map(|server| server.load[resource]).sum();
        let capacity: f64 = servers.iter().filter_map(|server| server.capacity(resource)).sum();
        let count = servers.len().max(1);
        let one = capacity / count as f64 * rule.limit / 100.0;
        let needed = if one > 0.0 { (demand / one).ceil() } else { 0.0 };
        let over = servers.iter().filter(|server| self.is_over(rule, server));
        let could_go: usize = over
            .map(|server| self.movable(rule, server).len().saturating_sub(1))
            .sum();
        let most = count.min(could_go.max(1)) as f64;
        (needed - count as f64).clamp(1.0, most) as u32
    }

    fn refuse_growth(&mut self, cause: Option<Cause>, count: u32, refusal: Refusal, out: &mut Vec<GemCommand>) {
        let change = Change::AddServers { count, reserved: None };
        let decision = self.context.decision(cause, change, Vec::new());
        refuse(decision, refusal, out);
    }

    /// Removes the least used server if all are below the lower bound and the others have room; returns whether one
    /// leaves.
    pub(super) fn plan_shrink(&mut self, rule: &Rule, out: &mut Vec<GemCommand>) -> bool {
        let all_under = {
            let mut servers = self.view.common().peekable();
            servers.peek().is_some() && servers.all(|server| !server.report.unsettled && self.is_under(rule, server))
        };
        let free = !self.changed_recently() && self.pending_vote.is_none() && self.provisions.pending() == 0;
        if !all_under || !free || self.size() <= self.context.settings.servers_min {
            return false;
        }
        let Some(node) = self.removable(rule.resource(), rule.limit - self.context.settings.noise_margin) else {
            return false;
        };
        let cause = rule.cause(node).cloned();
        self.ask_others(rule.index, Direction::Shrink, cause, 1, Some(node), out);
        true
    }

    /// The least used server without pinned or reserved actors whose units fit on the others.
    fn removable(&self, resource: Resource, limit: f64) -> Option<NodeId> {
        let mut servers: Vec<&Server> = self.view.common().filter(|server| self.may_leave(server)).collect();
        servers.sort_by(|one, other| {
            let percent = |server: &Server| server.percent(resource).unwrap_or(0.0);
            percent(one)
                .total_cmp(&percent(other))
                .then(one.node().cmp(&other.node()))
        });
        // Leave the noise margin free: filled up to the bound, the others would be above it shortly.
        let named = Terms::named(&self.context.policy);
        let terms = named.with_limit(resource, named.limits[resource].min(limit));
        servers
            .into_iter()
            .find(|server| self.fits_elsewhere(server, resource, &terms))
            .map(Server::node)
    }

    fn may_leave(&self, server: &Server) -> bool {
        let only_global = {
            let mut globals = self.context.members.iter().filter(|member| member.global);
            globals.next().is_some_and(|member| member.node == server.node()) && globals.next().is_none()
        };
        server.report.pinned == 0 && !only_global && !self.leaving.contains_key(&server.node())
    }

    fn fits_elsewhere(&self, server: &Server, resource: Resource, terms: &Terms) -> bool {
        let units: Vec<&Unit> = server.report.units.iter().collect();
        let packed = others_have_room(
            &self.context.policy,
            &self.view,
            server.node(),
            &units,
            resource,
            terms,
            None,
        );
        // Unlisted actors are small: they fit if the others have room for the total.
        let (mut used, mut room) = (server.load[resource], 0.0);
        for other in self.view.common().filter(|other| other.node() != server.node()) {
            used += other.load[resource];
            room += other.capacity(resource).unwrap_or(0.0) * terms.limits[resource] / 100.0;
        }
        packed && (server.report.server.actors == 0 || used <= room)
    }

    /// Removes a server that was added for a reservation and is no longer needed.
    pub(super) fn plan_surplus(&mut self, out: &mut Vec<GemCommand>) {
        if self.size() <= self.context.settings.servers_min || self.changed_recently() || self.pending_vote.is_some() {
            return;
        }
        let terms = Terms::named(&self.context.policy);
        let surplus = self
            .view
            .common()
            .filter(|server| server.report.added_for_reserve && server.report.free_periods >= RELEASE_PERIODS)
            .filter(|server| !server.report.unsettled && server.report.wishes.is_empty() && self.may_leave(server))
            .find(|server| self.fits_elsewhere(server, Resource::Cpu, &terms))
            .map(Server::node);
        if let Some(node) = surplus {
            self.remove_server(None, node, out);
        }
    }

    /// Drains a server so that it leaves.
    pub(super) fn remove_server(&mut self, cause: Option<Cause>, node: NodeId, out: &mut Vec<GemCommand>) {
        let decision = self.context.decision(cause, Change::RemoveServer { node }, Vec::new());
        record(decision, Outcome::Started, out);
        out.push(GemCommand::RemoveServer { node });
        self.leaving.insert(node, self.context.now);
        self.last_size_change = Some(self.context.now);
        if let Some(server) = self.view.servers.get_mut(&node) {
            server.report.server.state = ServerState::Draining;
        }
    }
}
