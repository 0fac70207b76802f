//! The lossless syntax tree: every token of the source, with the nodes above them in pre-order.
//!
//! A node stores its token range and the end of its descendants. The tree is therefore two flat vectors, cheap to build,
//! walk and drop at any depth.

use crate::ast::{self, Ast};
use crate::syntax::{lexer, parser};
use crate::{Diagnostic, Diagnostics, Span, SyntaxKind, Token};

/// The maximum size of a policy in bytes; ample for thousands of rules.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// A parsed policy. Every byte of the source belongs to a token of the tree.
#[derive(Clone, Debug)]
pub struct Syntax {
    source: String,
    tokens: Vec<Token>,
    nodes: Vec<Node>,
    diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) kind: SyntaxKind,
    /// Index of the first token.
    pub(crate) first: usize,
    /// Index one past the last token.
    pub(crate) end: usize,
    /// Index one past the last descendant node.
    pub(crate) descendants_end: usize,
}

/// A direct child of a node: a node or a token.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A node.
    Node(SyntaxNode<'a>),
    /// A token.
    Token(Token),
}

/// A node of the syntax tree.
#[derive(Clone, Copy, Debug)]
pub struct SyntaxNode<'a> {
    syntax: &'a Syntax,
    index: usize,
}

impl Syntax {
    /// Parses a policy. Syntax errors are in [`Syntax::diagnostics`] and in the tree as error nodes.
    pub fn parse(source: &str) -> Self {
        let mut diagnostics = Vec::new();
        // Rejecting oversized input here spares every later stage a limit of its own.
        let text = if source.len() > SOURCE_BYTES_MAX {
            diagnostics.push(Diagnostic::error(
                "too-large",
                Span::new(0, 0),
                format!(
                    "the policy has {} bytes, more than the {SOURCE_BYTES_MAX} allowed",
                    source.len()
                ),
            ));
            ""
        } else {
            source
        };
        let tokens = lexer::tokens(text, &mut diagnostics);
        let nodes = parser::parse(text, &tokens, &mut diagnostics);
        Self {
            source: text.into(),
            tokens,
            nodes,
            diagnostics,
        }
    }

    /// The text that was parsed; empty if it was larger than [`SOURCE_BYTES_MAX`].
    pub fn source(&self) -> &str {
        &self.source
    }

    /// All tokens; concatenated they are the whole source.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The lexer and parser errors.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The lexer and parser errors, located in a file of this name and ready to render.
    pub fn report(&self, file_name: &str) -> Diagnostics {
        Diagnostics::new(file_name, &self.source, self.diagnostics.clone())
    }

    /// The root node, which spans the whole file.
    pub fn root(&self) -> SyntaxNode<'_> {
        SyntaxNode { syntax: self, index: 0 }
    }

    /// Lowers the tree to its abstract syntax: rules and settings. Parts that failed to parse are omitted.
    pub fn ast(&self) -> Ast {
        ast::lower(self)
    }
}

impl<'a> SyntaxNode<'a> {
    fn node(&self) -> Node {
        self.syntax.nodes[self.index]
    }

    /// The kind of the node.
    pub fn kind(&self) -> SyntaxKind {
        self.node().kind
    }

    /// The tokens of the node and its descendants, including the trivia between them.
    pub fn all_tokens(&self) -> &'a [Token] {
        let node = self.node();
        &self.syntax.tokens[node.first..node.end]
    }

    /// The index of the first token in [`Syntax::tokens`].
    pub fn first_token(&self) -> usize {
        self.node().first
    }

    /// The source range; empty if the node has no tokens.
    pub fn span(&self) -> Span {
        match self.all_tokens() {
            [] => {
                let before = self.node().first.checked_sub(1).map(|index| self.syntax.tokens[index]);
                let at = before.map_or(0, |token| token.span.end);
                Span::new(at, at)
            }
            [first, .., last] => first.span.to(last.span),
            [only] => only.span,
        }
    }

    /// The source text of the node.
    pub fn text(&self) -> &'a str {
        self.span().text(&self.syntax.source)
    }

    /// The direct child nodes.
    pub fn children(&self) -> impl Iterator<Item = SyntaxNode<'a>> + use<'a> {
        let syntax = self.syntax;
        let end = self.node().descendants_end;
        let mut next = self.index + 1;
        std::iter::from_fn(move || {
            let index = (next < end).then_some(next)?;
            next = syntax.nodes[index].descendants_end;
            Some(SyntaxNode { syntax, index })
        })
    }

    /// The direct child nodes and tokens in source order, without trivia.
    pub fn elements(&self) -> Vec<Element<'a>> {
        let node = self.node();
        let mut elements = Vec::new();
        let mut children = self.children().peekable();
        let mut index = node.first;
        while index < node.end || children.peek().is_some() {
            match children.peek() {
                Some(child) if child.node().first <= index => {
                    index = child.node().end.max(index);
                    elements.push(Element::Node(*child));
                    children.next();
                }
                _ => {
                    let token = self.syntax.tokens[index];
                    if !token.kind.is_trivia() {
                        elements.push(Element::Token(token));
                    }
                    index += 1;
                }
            }
        }
        elements
    }

    /// The direct child tokens, without trivia.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + use<'a> {
        self.elements().into_iter().filter_map(|element| match element {
            Element::Token(token) => Some(token),
            Element::Node(_) => None,
        })
    }
}
