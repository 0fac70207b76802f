//! Abstract syntax: settings and rules, with names not resolved yet.

mod lower;

use std::fmt;

pub(crate) use lower::lower;

use crate::{Comparator, Span};

/// A whole policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ast {
    /// Its settings.
    pub settings: Vec<SettingAst>,
    /// Its rules.
    pub rules: Vec<RuleAst>,
}

/// A name as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Its span.
    pub span: Span,
}

/// A number as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Its value; infinite if it is too large.
    pub value: f64,
    /// Its span.
    pub span: Span,
}

/// A setting, such as `period 80 s;`.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingAst {
    /// The setting's name.
    pub name: Name,
    /// The names and numbers that follow.
    pub values: Vec<SettingValue>,
    /// Its span.
    pub span: Span,
}

/// A part of a setting's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// A name.
    Name(Name),
    /// A number.
    Number(Number),
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleAst {
    /// Its attributes: `@priority(10)`.
    pub attributes: Vec<(Name, Number)>,
    /// Its name.
    pub name: Option<Name>,
    /// Its condition.
    pub condition: ConditionAst,
    /// Its behaviours.
    pub behaviours: Vec<BehaviourAst>,
    /// Its span.
    pub span: Span,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum ConditionAst {
    /// `true`.
    True(Span),
    /// At least two conditions joined by `or`.
    Any(Vec<ConditionAst>),
    /// At least two conditions joined by `and`.
    All(Vec<ConditionAst>),
    /// A feature compared to a number.
    Compare(CompareAst),
    /// An actor among the references of another.
    Refers(RefersAst),
}

/// A feature compared to a number.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareAst {
    /// The owner of the feature.
    pub entity: EntityAst,
    /// The names after it, each with an optional argument.
    pub path: Vec<SegmentAst>,
    /// The comparator.
    pub comparator: Comparator,
    /// The bound.
    pub value: Number,
    /// Its span.
    pub span: Span,
}

/// A name after a dot, with an optional argument.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentAst {
    /// The name.
    pub name: Name,
    /// The argument in parentheses.
    pub argument: Option<MemberAst>,
}

/// An entity with one name after it, such as `Folder(fo).open`.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberAst {
    /// The entity.
    pub entity: EntityAst,
    /// The name.
    pub name: Name,
}

/// An actor among the references of another: `File(fi) in ref(fo.files)`.
#[derive(Clone, Debug, PartialEq)]
pub struct RefersAst {
    /// The referenced actor.
    pub target: EntityAst,
    /// The word after `in`.
    pub relation: Name,
    /// The referencing actor, with the property.
    pub holder: MemberAst,
    /// Its span.
    pub span: Span,
}

/// A name with an optional name in parentheses: `server`, `fo`, `Folder(fo)`.
#[derive(Clone, Debug, PartialEq)]
pub struct EntityAst {
    /// The name.
    pub name: Name,
    /// The argument in parentheses.
    pub argument: Option<Name>,
    /// Its span.
    pub span: Span,
}

/// A behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct BehaviourAst {
    /// Its name.
    pub name: Name,
    /// Its arguments.
    pub arguments: Vec<ArgumentAst>,
    /// Its span, `;` included.
    pub span: Span,
}

/// An argument of a behaviour.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentAst {
    /// An actor or a resource.
    Entity(EntityAst),
    /// Types in braces.
    Set(Vec<EntityAst>, Span),
}

impl ArgumentAst {
    /// Its span.
    pub fn span(&self) -> Span {
        match self {
            ArgumentAst::Entity(entity) => entity.span,
            ArgumentAst::Set(_, span) => *span,
        }
    }
}

impl ConditionAst {
    /// Its span, without enclosing parentheses.
    pub fn span(&self) -> Span {
        match self {
            ConditionAst::True(span) => *span,
            ConditionAst::Compare(compare) => compare.span,
            ConditionAst::Refers(refers) => refers.span,
            ConditionAst::Any(parts) | ConditionAst::All(parts) => match &parts[..] {
                [first, .., last] => first.span().to(last.span()),
                _ => unreachable!("a condition of several parts has at least two"),
            },
        }
    }
}

impl fmt::Display for EntityAst {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(out, "{}({})", self.name.text, argument.text),
            None => out.write_str(&self.name.text),
        }
    }
}

impl fmt::Display for MemberAst {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.entity, self.name.text)
    }
}

impl fmt::Display for CompareAst {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.entity)?;
        for segment in &self.path {
            write!(out, ".{}", segment.name.text)?;
            if let Some(argument) = &segment.argument {
                write!(out, "({argument})")?;
            }
        }
        write!(out, " {} {}", self.comparator.symbol(), self.value.value)
    }
}

impl fmt::Display for RefersAst {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} in {}({})", self.target, self.relation.text, self.holder)
    }
}
