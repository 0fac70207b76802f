//! The rule IR: one checked rule, with names resolved to ids and variables to numbers.

use std::cell::Cell;

use elastin_types::{ActorType, Method, Property, Resource};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Balance, Span};

/// One rule of a policy, checked against the application's schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The name, if the rule has one.
    pub name: Option<String>,
    /// The priority of all its actions, if the rule sets one.
    pub priority: Option<i32>,
    /// The rule as written.
    pub text: String,
    /// The source range.
    pub span: Span,
    /// The one-based line that it starts on.
    pub line: usize,
    /// The actors it refers to, in order of first occurrence.
    pub variables: Vec<Variable>,
    /// The comparisons and references that its condition is made of; `condition` names them by index.
    pub atoms: Vec<Atom>,
    /// The condition under which it fires.
    pub condition: Condition,
    /// The behaviours that it proposes when it fires.
    pub behaviours: Vec<Behaviour>,
    /// The variable that `server` is relative to: the first actor that the behaviours name. `None` if the only behaviour
    /// is `balance`: then `server` ranges over all servers.
    pub subject: Option<usize>,
    /// Whether it separates types: its only behaviour is a `separate` of two actors that nothing connects.
    pub between_types: bool,
}

/// An actor that a rule refers to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name; for a bare type, the type's name.
    pub name: String,
    /// Its type; `None` for `any`.
    pub kind: Option<ActorType>,
}

impl Variable {
    /// Whether actors of this type can be bound to the variable.
    pub fn admits(&self, kind: ActorType) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }
}

/// The maximum nesting of conditions in a compiled policy: twice the parser's limit, because each pair of parentheses
/// may hold both an `or` and an `and`.
pub(crate) const DEPTH_MAX: usize = 2 * crate::syntax::NESTING_MAX + 2;

/// A condition over a rule's atoms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Condition {
    /// Holds always.
    True,
    /// The atom with this index holds.
    Atom(usize),
    /// All of them hold.
    All(#[serde(deserialize_with = "decode_parts")] Vec<Condition>),
    /// At least one of them holds.
    Any(#[serde(deserialize_with = "decode_parts")] Vec<Condition>),
}

/// Decodes the parts of a condition and rejects excessive nesting. Not every decoder limits its depth, and a few
/// kilobytes of malicious input could overflow the stack.
fn decode_parts<'de, D: Deserializer<'de>>(decoder: D) -> Result<Vec<Condition>, D::Error> {
    thread_local! {
        /// Current nesting depth on this thread. The decoder's own frames lie between ours, so the depth can't be a
        /// parameter.
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    struct Level;
    impl Drop for Level {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    if DEPTH.get() >= DEPTH_MAX {
        return Err(D::Error::custom("a condition is nested too deep"));
    }
    DEPTH.set(DEPTH.get() + 1);
    let _level = Level;
    Vec::deserialize(decoder)
}

/// The smallest part of a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Atom {
    /// A measured value against a number.
    Compare(Comparison),
    /// One actor is among the references that another holds.
    Refers {
        /// The variable of the actor that is referred to.
        target: usize,
        /// The variable of the actor that holds the reference.
        holder: usize,
        /// The property that holds the reference.
        property: Property,
        /// The condition as written.
        text: String,
    },
}

impl Atom {
    /// The atom as written.
    pub fn text(&self) -> &str {
        match self {
            Atom::Compare(comparison) => &comparison.text,
            Atom::Refers { text, .. } => text,
        }
    }

    /// Whether it refers to `server`.
    pub fn mentions_server(&self) -> bool {
        matches!(self, Atom::Compare(comparison) if matches!(comparison.feature, Feature::Server(_)))
    }

    /// The variables it refers to.
    pub fn variables(&self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Atom::Refers { target, holder, .. } => (Some(*target), Some(*holder)),
            Atom::Compare(comparison) => match comparison.feature {
                Feature::Server(_) => (None, None),
                Feature::Actor(variable, _) => (Some(variable), None),
                Feature::Calls { caller, callee, .. } => match caller {
                    CallerClass::Variable(caller) => (Some(caller), Some(callee)),
                    CallerClass::Client | CallerClass::Kind(_) => (None, Some(callee)),
                },
            },
        };
        first.into_iter().chain(second)
    }

    /// The two variables that this atom connects: whenever it holds, a reference or a recorded call leads from one to
    /// the other. A comparison that also holds without any call connects nothing.
    pub fn connects(&self) -> Option<(usize, usize)> {
        match self {
            Atom::Refers { target, holder, .. } => Some((*holder, *target)),
            Atom::Compare(comparison) => match comparison.feature {
                Feature::Calls {
                    caller: CallerClass::Variable(caller),
                    callee,
                    ..
                } if comparison.fails_without_calls() => Some((caller, callee)),
                _ => None,
            },
        }
    }
}

/// A measured value compared to a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The measured feature.
    pub feature: Feature,
    /// The statistic of the feature.
    pub statistic: Statistic,
    /// The comparison operator.
    pub comparator: Comparator,
    /// The number on the right.
    pub value: f64,
    /// The comparison as written.
    pub text: String,
}

impl Comparison {
    /// Whether it can't hold for actors between which no call was recorded: their `count` and `perc` are 0, their
    /// `size` is unknown.
    pub fn fails_without_calls(&self) -> bool {
        self.statistic == Statistic::Size || !self.comparator.holds(0.0, self.value)
    }
}

/// A measured feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Feature {
    /// A resource of the server that `server` stands for.
    Server(Resource),
    /// A resource that an actor uses.
    Actor(usize, Resource),
    /// The calls of one function that an actor received.
    Calls {
        /// The callers that count.
        caller: CallerClass,
        /// The variable of the actor that was called.
        callee: usize,
        /// The function.
        method: Method,
    },
}

/// The callers whose calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CallerClass {
    /// Callers outside the cluster, all together.
    Client,
    /// All actors of a type together; of every type if `None`.
    Kind(Option<ActorType>),
    /// The actor that this variable is bound to.
    Variable(usize),
}

/// A statistic of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The frequency per unit of time.
    Count,
    /// The amount in the resource's own unit; for calls, the mean size in bytes.
    Size,
    /// The share in percent.
    Perc,
}

impl Statistic {
    /// All of them.
    pub const ALL: [Statistic; 3] = [Statistic::Count, Statistic::Size, Statistic::Perc];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Count => "count",
            Statistic::Size => "size",
            Statistic::Perc => "perc",
        }
    }
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Comparator {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparator {
    /// Whether the comparison holds for this value.
    pub fn holds(self, measured: f64, bound: f64) -> bool {
        match self {
            Comparator::Less => measured < bound,
            Comparator::LessOrEqual => measured <= bound,
            Comparator::Greater => measured > bound,
            Comparator::GreaterOrEqual => measured >= bound,
        }
    }

    /// Whether it bounds the value from below, so that it holds for large values.
    pub fn wants_more(self) -> bool {
        matches!(self, Comparator::Greater | Comparator::GreaterOrEqual)
    }

    /// Its symbol in policies.
    pub fn symbol(self) -> &'static str {
        match self {
            Comparator::Less => "<",
            Comparator::LessOrEqual => "<=",
            Comparator::Greater => ">",
            Comparator::GreaterOrEqual => ">=",
        }
    }
}

/// Default priorities of actions. Constraints rank before optimisations.
pub(crate) mod priority {
    pub(crate) const PIN: i32 = 50;
    pub(crate) const RESERVE: i32 = 40;
    pub(crate) const SEPARATE: i32 = 30;
    pub(crate) const BALANCE: i32 = 20;
    pub(crate) const COLOCATE: i32 = 10;
}

/// A behaviour that a rule proposes for its variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Behaviour {
    /// Spread the load of a resource by moving actors of some types.
    Balance(Balance),
    /// Give the actor a server of its own with enough of the resource.
    Reserve {
        /// The actor's variable.
        actor: usize,
        /// The resource that it needs.
        resource: Resource,
    },
    /// Keep the actors of the two variables on one server.
    Colocate(usize, usize),
    /// Keep the actors of the two variables on different servers.
    Separate(usize, usize),
    /// Leave the actor where it is.
    Pin(usize),
}

impl Behaviour {
    /// Its name in policies.
    pub fn name(&self) -> &'static str {
        match self {
            Behaviour::Balance(_) => "balance",
            Behaviour::Reserve { .. } => "reserve",
            Behaviour::Colocate(..) => "colocate",
            Behaviour::Separate(..) => "separate",
            Behaviour::Pin(_) => "pin",
        }
    }

    /// Whether it is a resource behaviour, which global managers carry out. The others are interaction behaviours,
    /// which local managers carry out.
    pub fn is_resource(&self) -> bool {
        matches!(self, Behaviour::Balance(_) | Behaviour::Reserve { .. })
    }

    /// The priority of its actions if the rule sets none.
    pub fn default_priority(&self) -> i32 {
        match self {
            Behaviour::Pin(_) => priority::PIN,
            Behaviour::Reserve { .. } => priority::RESERVE,
            Behaviour::Separate(..) => priority::SEPARATE,
            Behaviour::Balance(_) => priority::BALANCE,
            Behaviour::Colocate(..) => priority::COLOCATE,
        }
    }

    /// The variables it refers to, in source order.
    pub fn variables(&self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Behaviour::Balance(_) => (None, None),
            Behaviour::Reserve { actor, .. } | Behaviour::Pin(actor) => (Some(*actor), None),
            Behaviour::Colocate(first, second) | Behaviour::Separate(first, second) => (Some(*first), Some(*second)),
        };
        first.into_iter().chain(second)
    }
}

impl Rule {
    /// The rule's name, or its one-based number, for messages.
    pub fn label(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("rule {}", index + 1))
    }

    /// Whether global managers evaluate it, for each server in turn: its only behaviour is `balance`. All other rules
    /// are evaluated by the local manager of their subject's server.
    pub fn is_global(&self) -> bool {
        self.subject.is_none()
    }

    /// Its resource behaviours, which global managers carry out.
    pub fn resource_behaviours(&self) -> impl Iterator<Item = &Behaviour> {
        self.behaviours.iter().filter(|behaviour| behaviour.is_resource())
    }

    /// Its interaction behaviours, which local managers carry out.
    pub fn interaction_behaviours(&self) -> impl Iterator<Item = &Behaviour> {
        self.behaviours.iter().filter(|behaviour| !behaviour.is_resource())
    }

    /// The priority of one of its behaviours.
    pub fn priority_of(&self, behaviour: &Behaviour) -> i32 {
        self.priority.unwrap_or_else(|| behaviour.default_priority())
    }

    /// The two variables of a rule that separates types: its only behaviour is a `separate` of two actors that nothing
    /// connects. It is never expanded into pairs of actors; see [`Policy::separates`](crate::Policy::separates).
    pub fn separated_types(&self) -> Option<(usize, usize)> {
        match self.behaviours[..] {
            [Behaviour::Separate(first, second)] if self.between_types => Some((first, second)),
            _ => None,
        }
    }
}
