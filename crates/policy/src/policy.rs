//! A compiled policy: its rules, its settings, and static queries over them.

use std::time::Duration;

use elastin_types::{ActorType, Resource};
use serde::{Deserialize, Serialize};

use crate::disjunct::{Disjunct, disjuncts};
use crate::file::PolicyFile;
use crate::rule::priority;
use crate::{Action, Atom, Balance, Behaviour, Condition, Feature, Interest, Rule, Statistic};

/// The unit of time for `count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountUnit {
    /// Calls per second.
    Second,
    /// Calls per minute; the default.
    #[default]
    Minute,
    /// Calls per hour.
    Hour,
}

impl CountUnit {
    /// All of them.
    pub const ALL: [CountUnit; 3] = [CountUnit::Second, CountUnit::Minute, CountUnit::Hour];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        match self {
            CountUnit::Second => "second",
            CountUnit::Minute => "minute",
            CountUnit::Hour => "hour",
        }
    }

    /// Its length in seconds.
    pub fn seconds(self) -> f64 {
        match self {
            CountUnit::Second => 1.0,
            CountUnit::Minute => 60.0,
            CountUnit::Hour => 3600.0,
        }
    }
}

/// A policy that was checked against a schema. It serialises like the compiled file (see [`Policy::to_file`]), and
/// decoding validates it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PolicyFile", into = "PolicyFile")]
pub struct Policy {
    pub(crate) settings: Settings,
    pub(crate) rules: Vec<Rule>,
    pub(crate) interest: Interest,
    /// The alternatives of each rule's condition, derived from it.
    pub(crate) alternatives: Vec<Vec<Disjunct>>,
}

/// The settings of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The elasticity period, if the policy sets it.
    pub(crate) period: Option<Duration>,
    /// The unit of time for `count`.
    pub(crate) count_unit: CountUnit,
}

/// A type that some rule colocates with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColocatedKind {
    /// The rule, by its index.
    pub rule: usize,
    /// The other type; `None` for `any`.
    pub partner: Option<ActorType>,
}

impl Policy {
    /// # Panics
    /// If a condition has too many alternatives; the checker and the compiled-file reader reject those first.
    pub(crate) fn new(settings: Settings, rules: Vec<Rule>, interest: Interest) -> Self {
        let alternatives = rules
            .iter()
            .map(|rule| disjuncts(&rule.condition).expect("rules with too many alternatives are rejected earlier"))
            .collect();
        Self {
            settings,
            rules,
            interest,
            alternatives,
        }
    }

    /// The rules in source order. A rule's index here is its number in [`Fired`](crate::Fired).
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The elasticity period, if the policy sets it.
    pub fn period(&self) -> Option<Duration> {
        self.settings.period
    }

    /// The unit of time for `count`.
    pub fn count_unit(&self) -> CountUnit {
        self.settings.count_unit
    }

    /// The measurements that profiling must collect to evaluate the rules.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// The priority of an action that a rule proposed. For one actor the highest wins, then the earlier rule.
    ///
    /// # Panics
    /// If there is no such rule.
    pub fn priority(&self, rule: usize, action: &Action) -> i32 {
        self.rules[rule].priority.unwrap_or(match action {
            Action::Pin(_) => priority::PIN,
            Action::Reserve { .. } => priority::RESERVE,
            Action::Separate(..) => priority::SEPARATE,
            Action::Balance(_) => priority::BALANCE,
            Action::Colocate(..) => priority::COLOCATE,
        })
    }

    /// Every `balance` behaviour, with the index of its rule.
    pub fn balances(&self) -> impl Iterator<Item = (usize, &Balance)> {
        self.behaviours().filter_map(|(rule, behaviour)| match behaviour {
            Behaviour::Balance(balance) => Some((rule, balance)),
            _ => None,
        })
    }

    /// The `balance` behaviours that may move actors of a type, with the index of their rule.
    pub fn balances_of(&self, kind: ActorType) -> impl Iterator<Item = (usize, &Balance)> {
        self.balances().filter(move |(_, balance)| balance.moves(kind))
    }

    /// The rules that may reserve actors of a type, with the resource.
    pub fn reserves_of(&self, kind: ActorType) -> impl Iterator<Item = (usize, Resource)> {
        self.behaviours().filter_map(move |(rule, behaviour)| match behaviour {
            Behaviour::Reserve { actor, resource } => self.rules[rule].variables[*actor]
                .admits(kind)
                .then_some((rule, *resource)),
            _ => None,
        })
    }

    /// The types that rules may colocate with actors of a type.
    pub fn colocated_with(&self, kind: ActorType) -> impl Iterator<Item = ColocatedKind> {
        self.behaviours()
            .filter_map(|(rule, behaviour)| match behaviour {
                Behaviour::Colocate(first, second) => Some([(rule, *first, *second), (rule, *second, *first)]),
                _ => None,
            })
            .flatten()
            .filter_map(move |(rule, own, other)| {
                let variables = &self.rules[rule].variables;
                let partner = variables[other].kind;
                variables[own].admits(kind).then_some(ColocatedKind { rule, partner })
            })
    }

    /// The first rule that may colocate actors of these two types.
    pub fn colocates(&self, one: ActorType, other: ActorType) -> Option<usize> {
        self.colocated_with(one)
            .filter(|colocated| colocated.partner.is_none_or(|partner| partner == other))
            .map(|colocated| colocated.rule)
            .min()
    }

    /// The first rule that pins every actor of a type unconditionally.
    pub fn always_pinned(&self, kind: ActorType) -> Option<usize> {
        self.behaviours()
            .find(|(rule, behaviour)| {
                let rule = &self.rules[*rule];
                rule.condition.is_trivial()
                    && rule.variables.len() == 1
                    && matches!(behaviour, Behaviour::Pin(actor) if rule.variables[*actor].admits(kind))
            })
            .map(|(rule, _)| rule)
    }

    /// The lowest percentage of a server's resource that any rule names as an upper bound (`server.cpu.perc > 80`). It
    /// limits the target servers of a `balance` that has no upper bound of its own.
    pub fn lowest_upper_bound(&self, resource: Resource) -> Option<f64> {
        self.rules
            .iter()
            .flat_map(|rule| &rule.atoms)
            .filter_map(|atom| match atom {
                Atom::Compare(comparison)
                    if comparison.feature == Feature::Server(resource)
                        && comparison.statistic == Statistic::Perc
                        && comparison.comparator.wants_more() =>
                {
                    Some(comparison.value)
                }
                _ => None,
            })
            .min_by(f64::total_cmp)
    }

    /// The resource by which moves of a type are judged: the one that rules name for it in `reserve` or `balance`.
    pub fn critical_resource(&self, kind: ActorType) -> Option<Resource> {
        let reserved = self.reserves_of(kind);
        let balanced = self.balances_of(kind).map(|(rule, balance)| (rule, balance.resource));
        reserved
            .chain(balanced)
            .min_by_key(|(rule, _)| *rule)
            .map(|(_, resource)| resource)
    }

    /// The indices of the rules that separate types; [`Policy::separates`] evaluates one for two actors.
    pub fn type_separations(&self) -> impl Iterator<Item = usize> {
        (0..self.rules.len()).filter(|rule| self.rules[*rule].separated_types().is_some())
    }

    fn behaviours(&self) -> impl Iterator<Item = (usize, &Behaviour)> {
        self.rules
            .iter()
            .enumerate()
            .flat_map(|(index, rule)| rule.behaviours.iter().map(move |behaviour| (index, behaviour)))
    }
}

impl Balance {
    /// Whether it may move actors of this type.
    pub fn moves(&self, kind: ActorType) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

impl Condition {
    /// Whether it holds regardless of measurements.
    pub fn is_trivial(&self) -> bool {
        match self {
            Condition::True => true,
            Condition::Atom(_) => false,
            Condition::All(parts) => parts.iter().all(Condition::is_trivial),
            Condition::Any(parts) => parts.iter().any(Condition::is_trivial),
        }
    }
}
