//! `balance`: actors move from servers above the upper bound, and to servers below the lower one.

use elastin_policy::{Action, Balance, Index, Scope};
use elastin_types::{ActorId, NodeId, Resource};

use super::Gem;
use super::event::GemCommand;
use super::room::{Terms, obstacle};
use super::view::Server;
use crate::decision::by_quality;
use crate::limits::upper_limit;
use crate::settings::HYSTERESIS_PERIODS;
use crate::{Candidate, Cause, Change, Proposal, Purpose, Refusal, Unit};

/// Number of moves that one `balance` plans per round; the rest follow in later rounds.
const MOVES_MAX: usize = 1_024;

/// Assumed transfer rate of actor state, which determines how long moving actors pause.
const MOVE_BYTES_PER_SECOND: f64 = 64.0 * 1024.0 * 1024.0;

/// Minimum pause of a unit's actors during a move, in seconds.
const PAUSE_SECONDS: f64 = 0.01;

/// One `balance` rule with its firings of this round.
pub(crate) struct Rule {
    pub(crate) index: usize,
    pub(crate) balance: Balance,
    pub(crate) priority: i32,
    /// The limit up to which servers may be filled.
    pub(crate) limit: f64,
    /// Its firings, one per server.
    pub(crate) fired: Vec<Cause>,
}

impl Rule {
    pub(crate) fn resource(&self) -> Resource {
        self.balance.resource
    }

    fn terms(&self) -> Terms {
        Terms::WHOLE.with_limit(self.resource(), self.limit)
    }

    /// Its firing for a server.
    pub(crate) fn cause(&self, node: NodeId) -> Option<&Cause> {
        self.fired.iter().find(|fired| fired.server == Some(node))
    }
}

/// A candidate move.
struct Step {
    lead: ActorId,
    from: NodeId,
    to: NodeId,
    /// Reduction of the higher of the two loads, in percentage points.
    gain: f64,
}

impl Gem {
    /// Plans the moves of all `balance` rules, and changes the number of servers where moves are not enough.
    pub(super) fn plan_balances(&mut self, out: &mut Vec<GemCommand>) {
        for rule in self.balance_rules() {
            let shrinks = self.plan_shrink(&rule, out);
            if shrinks {
                continue;
            }
            self.relieve(&rule);
            self.draw(&rule);
            self.plan_growth(&rule, out);
        }
    }

    /// All `balance` rules with the servers that they fired for. Rules that only balance are evaluated here; firings of
    /// the others are in the reports.
    pub(super) fn balance_rules(&self) -> Vec<Rule> {
        let snapshot = self.view.snapshot(self.context.now, self.context.settings.period);
        let evaluated = self.context.policy.evaluate(&Index::new(&snapshot), Scope::Global);
        let fired: Vec<Cause> = evaluated
            .iter()
            .map(|fired| Cause::new(&self.context.policy, fired))
            .collect();
        let reported = self.view.servers.values().flat_map(|server| &server.report.balances);
        let fired: Vec<&Cause> = fired.iter().chain(reported).collect();
        self.context
            .policy
            .balances()
            .map(|(index, balance)| Rule {
                index,
                priority: self.context.policy.priority(index, &Action::Balance(balance.clone())),
                limit: upper_limit(&self.context.policy, balance),
                fired: fired
                    .iter()
                    .filter(|cause| cause.rule == index)
                    .map(|cause| (*cause).clone())
                    .collect(),
                balance: balance.clone(),
            })
            .collect()
    }

    /// Whether a server is above the rule's upper bound, by more than noise or for long enough.
    pub(super) fn is_over(&self, rule: &Rule, server: &Server) -> bool {
        let Some((percent, upper)) = server.measured(rule.resource()).zip(rule.balance.upper) else {
            return false;
        };
        rule.cause(server.node()).is_some()
            && percent > upper
            && (percent > upper + self.context.settings.noise_margin
                || server.streak(rule.index).above >= HYSTERESIS_PERIODS)
    }

    /// Whether a server is below the rule's lower bound, by more than noise or for long enough.
    pub(super) fn is_under(&self, rule: &Rule, server: &Server) -> bool {
        let Some((percent, lower)) = server.measured(rule.resource()).zip(rule.balance.lower) else {
            return false;
        };
        rule.cause(server.node()).is_some()
            && percent < lower
            && (percent < lower - self.context.settings.noise_margin
                || server.streak(rule.index).below >= HYSTERESIS_PERIODS)
    }

    /// Moves actors away from servers above the upper bound, fullest first.
    fn relieve(&mut self, rule: &Rule) {
        let mut over: Vec<(f64, NodeId)> = self
            .view
            .common()
            .filter(|server| server.is_open && !server.report.unsettled && self.is_over(rule, server))
            .filter_map(|server| Some((server.percent(rule.resource())?, server.node())))
            .collect();
        over.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        for (_, node) in over {
            for _ in 0..MOVES_MAX {
                let percent = self.view.get(node).and_then(|server| server.percent(rule.resource()));
                if percent.is_none_or(|percent| percent <= rule.limit) {
                    break;
                }
                let Some(step) = self.relieving_step(rule, node) else {
                    break;
                };
                self.take(rule, step, node);
            }
        }
    }

    /// The cheapest unit whose departure is enough, else the largest that some server can take.
    fn relieving_step(&self, rule: &Rule, from: NodeId) -> Option<Step> {
        let source = self.view.get(from)?;
        let percent = source.percent(rule.resource())?;
        let mut units = self.movable(rule, source);
        units.sort_by(|one, other| one.used[rule.resource()].total_cmp(&other.used[rule.resource()]));
        let leaves = |unit: &Unit| percent - share(source, unit, rule.resource());
        let enough = units.iter().filter(|unit| leaves(unit) <= rule.limit);
        let too_little = units.iter().rev().filter(|unit| leaves(unit) > rule.limit);
        enough.chain(too_little).find_map(|unit| self.step(rule, source, unit))
    }

    /// The move of a unit to the best server: one below the lower bound first, then the emptiest.
    fn step(&self, rule: &Rule, source: &Server, unit: &Unit) -> Option<Step> {
        let resource = rule.resource();
        let before = source.percent(resource)?;
        let after = before - share(source, unit, resource);
        self.view
            .common()
            .filter(|target| target.node() != source.node())
            .filter(|target| obstacle(&self.context.policy, unit, target, &rule.terms()).is_none())
            .filter_map(|target| {
                let filled = target.percent_with(unit, resource)?;
                let gain = before - filled.max(after);
                (gain > 0.0 && self.is_worth_it(unit, source, resource, gain)).then_some((filled, gain, target))
            })
            .min_by(|(one, _, first), (other, _, second)| {
                let is_under = |target: &Server| {
                    let bound = rule.balance.lower.zip(target.percent(resource));
                    bound.is_some_and(|(lower, percent)| percent < lower)
                };
                (is_under(second).cmp(&is_under(first)))
                    .then(one.total_cmp(other))
                    .then(first.node().cmp(&second.node()))
            })
            .map(|(_, gain, target)| Step {
                lead: unit.lead.clone(),
                from: source.node(),
                to: target.node(),
                gain,
            })
    }

    /// Moves actors to servers below the lower bound, emptiest first, from the fullest servers.
    fn draw(&mut self, rule: &Rule) {
        let mut under: Vec<(f64, NodeId)> = self
            .view
            .common()
            .filter(|server| !server.report.unsettled && self.is_under(rule, server))
            .filter_map(|server| Some((server.percent(rule.resource())?, server.node())))
            .collect();
        under.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (_, node) in under {
            for _ in 0..MOVES_MAX {
                let percent = self.view.get(node).and_then(|server| server.percent(rule.resource()));
                let filled = percent
                    .zip(rule.balance.lower)
                    .is_none_or(|(percent, lower)| percent >= lower);
                let Some(step) = (!filled).then(|| self.drawing_step(rule, node)).flatten() else {
                    break;
                };
                self.take(rule, step, node);
            }
        }
    }

    /// The move to a server that lowers the fullest other one most. It must gain more than the noise margin: an idle
    /// server alone does not justify moving actors.
    fn drawing_step(&self, rule: &Rule, to: NodeId) -> Option<Step> {
        let resource = rule.resource();
        let target = self.view.get(to)?;
        let mut sources: Vec<(f64, &Server)> = self
            .view
            .common()
            .filter(|server| server.node() != to && server.is_open && !server.report.unsettled)
            .filter_map(|server| Some((server.percent(resource)?, server)))
            .collect();
        sources.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.node().cmp(&other.1.node())));
        sources.into_iter().find_map(|(before, source)| {
            self.movable(rule, source)
                .into_iter()
                .filter(|unit| obstacle(&self.context.policy, unit, target, &rule.terms()).is_none())
                .filter_map(|unit| {
                    let after = before - share(source, unit, resource);
                    let gain = before - target.percent_with(unit, resource)?.max(after);
                    let worth =
                        gain >= self.context.settings.noise_margin && self.is_worth_it(unit, source, resource, gain);
                    worth.then_some((gain, unit))
                })
                .max_by(|one, other| one.0.total_cmp(&other.0).then_with(|| other.1.lead.cmp(&one.1.lead)))
                .map(|(gain, unit)| Step {
                    lead: unit.lead.clone(),
                    from: source.node(),
                    to,
                    gain,
                })
        })
    }

    /// The units of a server that the rule may move.
    pub(super) fn movable<'a>(&self, rule: &Rule, server: &'a Server) -> Vec<&'a Unit> {
        let units = server.report.units.iter();
        units
            .filter(|unit| unit.has_kind(&rule.balance.kinds))
            .filter(|unit| !unit.held.as_ref().is_some_and(|held| held.holds_against(rule.priority)))
            .filter(|unit| unit.used[rule.resource()] > 0.0)
            .collect()
    }

    /// Whether the load relieved within a period exceeds the work lost to the pause.
    fn is_worth_it(&self, unit: &Unit, source: &Server, resource: Resource, gain_points: f64) -> bool {
        let Some(capacity) = source.capacity(resource) else {
            return false;
        };
        let pause = PAUSE_SECONDS + unit.used.mem / MOVE_BYTES_PER_SECOND;
        let relieved = gain_points / 100.0 * capacity * self.context.settings.period.as_secs_f64();
        relieved > pause * unit.used[resource]
    }

    /// Proposes a step. `about` is the server that the rule fired for.
    fn take(&mut self, rule: &Rule, step: Step, about: NodeId) {
        let unit = self.unit(step.from, &step.lead).expect("a step moves a unit in view");
        let candidates = self.balance_candidates(rule, &unit, &step);
        let cause = rule.cause(about).cloned();
        let change = Change::moving(
            main_actor(rule, &unit),
            step.from,
            Some(step.to),
            Purpose::Balance(rule.resource()),
        );
        let decision = self.context.decision(cause, change, candidates);
        let proposal = Proposal {
            decision,
            priority: rule.priority,
            score: step.gain,
            reservation: None,
        };
        self.propose(proposal, &step.lead);
    }

    fn balance_candidates(&self, rule: &Rule, unit: &Unit, step: &Step) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = self
            .view
            .servers
            .values()
            .filter(|server| server.node() != step.from)
            .map(|server| {
                let chosen = server.node() == step.to;
                Candidate {
                    node: server.node(),
                    score: 100.0 - server.percent_with(unit, rule.resource()).unwrap_or(0.0),
                    refused: (!chosen)
                        .then(|| obstacle(&self.context.policy, unit, server, &rule.terms()).unwrap_or(Refusal::Worse)),
                }
            })
            .collect();
        candidates.sort_by(by_quality);
        candidates
    }
}

/// The unit's share of a server's capacity, in percent.
pub(crate) fn share(server: &Server, unit: &Unit, resource: Resource) -> f64 {
    server
        .capacity(resource)
        .map_or(0.0, |capacity| 100.0 * unit.used[resource] / capacity)
}

/// The actor that represents the unit in a record: one of the rule's types.
fn main_actor(rule: &Rule, unit: &Unit) -> ActorId {
    let named = unit.actors.iter().find(|actor| rule.balance.moves(actor.kind));
    named.unwrap_or(&unit.lead).clone()
}
