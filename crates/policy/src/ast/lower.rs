//! Lowering of the lossless syntax tree to the abstract syntax.

use super::{
    ArgumentAst, Ast, BehaviourAst, CompareAst, ConditionAst, EntityAst, MemberAst, Name, Number, RefersAst, RuleAst,
    SegmentAst, SettingAst, SettingValue,
};
use crate::{Comparator, Span, Syntax, SyntaxKind, SyntaxNode};

/// Lowers a tree. Unparsable parts are omitted; the parser has reported them.
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
            .expect("the lexer accepts only numbers that parse");
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
            other => unreachable!("the lexer accepts no comparator {other}"),
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
        // The node's own words are `in` and the relation.
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
