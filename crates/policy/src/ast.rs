//! The syntax without what means nothing: settings and rules with names still as written.

use std::fmt;

use crate::{Comparator, Span, Syntax, SyntaxKind, SyntaxNode};

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
    /// Where it stands.
    pub span: Span,
}

/// A number as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Its value; infinite if it is too large to be one.
    pub value: f64,
    /// Where it stands.
    pub span: Span,
}

/// A setting, such as `period 80 s;`.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingAst {
    /// What is set.
    pub name: Name,
    /// To what: the names and numbers that follow.
    pub values: Vec<SettingValue>,
    /// Where it stands.
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
    /// When it fires.
    pub condition: ConditionAst,
    /// What it proposes.
    pub behaviours: Vec<BehaviourAst>,
    /// Where it stands.
    pub span: Span,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum ConditionAst {
    /// `true`.
    True(Span),
    /// Joined by `or`; at least two.
    Any(Vec<ConditionAst>),
    /// Joined by `and`; at least two.
    All(Vec<ConditionAst>),
    /// A feature compared to a number.
    Compare(CompareAst),
    /// An actor among the references of another.
    Refers(RefersAst),
}

/// A feature compared to a number.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareAst {
    /// Whose feature.
    pub entity: EntityAst,
    /// The names after it, each with an optional argument.
    pub path: Vec<SegmentAst>,
    /// How it is compared.
    pub comparator: Comparator,
    /// To what.
    pub value: Number,
    /// Where it stands.
    pub span: Span,
}

/// A name after a dot, with an optional argument.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentAst {
    /// The name.
    pub name: Name,
    /// What stands in parentheses after it.
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
    /// The actor that is referred to.
    pub target: EntityAst,
    /// The word after `in`.
    pub relation: Name,
    /// The actor that refers to it, with the property.
    pub holder: MemberAst,
    /// Where it stands.
    pub span: Span,
}

/// A name with an optional name in parentheses: `server`, `fo`, `Folder(fo)`.
#[derive(Clone, Debug, PartialEq)]
pub struct EntityAst {
    /// The name.
    pub name: Name,
    /// What stands in parentheses after it.
    pub argument: Option<Name>,
    /// Where it stands.
    pub span: Span,
}

/// A behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct BehaviourAst {
    /// Its name.
    pub name: Name,
    /// Its arguments.
    pub arguments: Vec<ArgumentAst>,
    /// Where it stands, `;` included.
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
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            ArgumentAst::Entity(entity) => entity.span,
            ArgumentAst::Set(_, span) => *span,
        }
    }
}

impl ConditionAst {
    /// Where it stands, parentheses around it left out.
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

/// Takes the meaning out of a tree. What could not be parsed is left out; the parser has complained about it.
pub(crate) fn lower(syntax: &Syntax) -> Ast {
    let lower = Lower {
        source: syntax.source(),
    };
    let mut ast = Ast::default();
    for node in syntax.root().children() {
        match node.kind() {
            SyntaxKind::Setting => ast.settings.extend(lower.setting(node)),
            SyntaxKind::Rule => ast.rules.extend(lower.rule(node)),
            _ => {}
        }
    }
    ast
}

struct Lower<'a> {
    source: &'a str,
}

impl Lower<'_> {
    fn name(&self, span: Span) -> Name {
        Name {
            text: span.text(self.source).into(),
            span,
        }
    }

    fn number(&self, span: Span) -> Number {
        let value = span
            .text(self.source)
            .parse()
            .expect("the lexer knows what a number is");
        Number { value, span }
    }

    fn names(&self, node: SyntaxNode<'_>) -> impl Iterator<Item = Name> {
        node.tokens()
            .filter(|token| token.kind.is_word())
            .map(|token| self.name(token.span))
    }

    fn first_number(&self, node: SyntaxNode<'_>) -> Option<Number> {
        let token = node.tokens().find(|token| token.kind == SyntaxKind::Number)?;
        Some(self.number(token.span))
    }

    fn setting(&self, node: SyntaxNode<'_>) -> Option<SettingAst> {
        let mut values = node.tokens().filter_map(|token| match token.kind {
            SyntaxKind::Number => Some(SettingValue::Number(self.number(token.span))),
            kind if kind.is_word() => Some(SettingValue::Name(self.name(token.span))),
            _ => None,
        });
        let Some(SettingValue::Name(name)) = values.next() else {
            return None;
        };
        Some(SettingAst {
            name,
            values: values.collect(),
            span: node.span(),
        })
    }

    fn rule(&self, node: SyntaxNode<'_>) -> Option<RuleAst> {
        let mut rule = RuleAst {
            attributes: Vec::new(),
            name: None,
            condition: ConditionAst::True(Span::default()),
            behaviours: Vec::new(),
            span: node.span(),
        };
        let mut condition = None;
        for child in node.children() {
            match child.kind() {
                SyntaxKind::Attribute => {
                    let attribute = self.names(child).next().zip(self.first_number(child));
                    rule.attributes.extend(attribute);
                }
                SyntaxKind::RuleName => rule.name = self.names(child).nth(1),
                SyntaxKind::AnyOf => condition = self.condition(child),
                SyntaxKind::Behaviour => rule.behaviours.extend(self.behaviour(child)),
                _ => {}
            }
        }
        rule.condition = condition?;
        Some(rule)
    }

    fn condition(&self, node: SyntaxNode<'_>) -> Option<ConditionAst> {
        match node.kind() {
            SyntaxKind::AnyOf => self.joined(node, ConditionAst::Any),
            SyntaxKind::AllOf => self.joined(node, ConditionAst::All),
            SyntaxKind::Group => self.condition(node.children().next()?),
            SyntaxKind::Always => Some(ConditionAst::True(node.span())),
            SyntaxKind::Comparison => self.comparison(node).map(ConditionAst::Compare),
            SyntaxKind::Membership => self.membership(node).map(ConditionAst::Refers),
            _ => None,
        }
    }

    fn joined(&self, node: SyntaxNode<'_>, join: fn(Vec<ConditionAst>) -> ConditionAst) -> Option<ConditionAst> {
        let mut parts: Vec<_> = node.children().filter_map(|child| self.condition(child)).collect();
        match parts.len() {
            0 | 1 => parts.pop(),
            _ => Some(join(parts)),
        }
    }

    fn comparison(&self, node: SyntaxNode<'_>) -> Option<CompareAst> {
        let comparator = node.tokens().find(|token| token.kind == SyntaxKind::Comparator)?;
        let comparator = match comparator.span.text(self.source) {
            "<" => Comparator::Less,
            "<=" => Comparator::LessOrEqual,
            ">" => Comparator::Greater,
            ">=" => Comparator::GreaterOrEqual,
            other => unreachable!("the lexer knows no comparator {other}"),
        };
        let segments = node.children().filter(|child| child.kind() == SyntaxKind::Segment);
        Some(CompareAst {
            entity: self.entity(node.children().next()?)?,
            path: segments.map(|segment| self.segment(segment)).collect::<Option<_>>()?,
            comparator,
            value: self.first_number(node)?,
            span: node.span(),
        })
    }

    fn segment(&self, node: SyntaxNode<'_>) -> Option<SegmentAst> {
        let name = self.names(node).next()?;
        let argument = match node.children().next() {
            Some(member) => Some(self.member(member)?),
            None => None,
        };
        Some(SegmentAst { name, argument })
    }

    fn member(&self, node: SyntaxNode<'_>) -> Option<MemberAst> {
        Some(MemberAst {
            entity: self.entity(node.children().next()?)?,
            name: self.names(node).next()?,
        })
    }

    fn membership(&self, node: SyntaxNode<'_>) -> Option<RefersAst> {
        let mut children = node.children();
        // The words below the node itself are `in` and the one after it.
        Some(RefersAst {
            target: self.entity(children.next()?)?,
            relation: self.names(node).nth(1)?,
            holder: self.member(children.next()?)?,
            span: node.span(),
        })
    }

    fn entity(&self, node: SyntaxNode<'_>) -> Option<EntityAst> {
        if node.kind() != SyntaxKind::Entity {
            return None;
        }
        let mut names = self.names(node);
        Some(EntityAst {
            name: names.next()?,
            argument: names.next(),
            span: node.span(),
        })
    }

    fn behaviour(&self, node: SyntaxNode<'_>) -> Option<BehaviourAst> {
        let argument = |child: SyntaxNode<'_>| match child.kind() {
            SyntaxKind::Entity => self.entity(child).map(ArgumentAst::Entity),
            SyntaxKind::Set => {
                let types = child.children().filter_map(|entity| self.entity(entity)).collect();
                Some(ArgumentAst::Set(types, child.span()))
            }
            _ => None,
        };
        Some(BehaviourAst {
            name: self.names(node).next()?,
            arguments: node.children().filter_map(argument).collect(),
            span: node.span(),
        })
    }
}
