//! The lossless tree: all tokens of the text, and over them the nodes in the order of their beginnings.
//!
//! A node knows its range of tokens and where its descendants end in the list, so the tree is two flat lists: cheap to
//! build, to walk and to drop, however deep it is.

use crate::ast::{self, Ast};
use crate::syntax::{lexer, parser};
use crate::{Diagnostic, Diagnostics, Span, SyntaxKind, Token};

/// The largest policy in bytes. A thousand rules take a tenth of it.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// A policy's text, parsed: every byte of it is in some token of the tree.
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
    /// Its first token, by index.
    pub(crate) first: usize,
    /// The token after its last one.
    pub(crate) end: usize,
    /// The node after its last descendant.
    pub(crate) descendants_end: usize,
}

/// A node or a token below a node.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A node.
    Node(SyntaxNode<'a>),
    /// A token.
    Token(Token),
}

/// One node of the tree.
#[derive(Clone, Copy, Debug)]
pub struct SyntaxNode<'a> {
    syntax: &'a Syntax,
    index: usize,
}

impl Syntax {
    /// Parses a policy. Mistakes are in [`Syntax::diagnostics`], and in the tree as well.
    pub fn parse(source: &str) -> Self {
        let mut diagnostics = Vec::new();
        // What is too large is not looked at, so that nothing else needs a limit of its own.
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

    /// All tokens: together they are the whole text.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The mistakes that were found.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The mistakes that were found, with their places in the file of this name: for people and tools.
    pub fn report(&self, file_name: &str) -> Diagnostics {
        Diagnostics::new(file_name, &self.source, self.diagnostics.clone())
    }

    /// The node of the whole file.
    pub fn root(&self) -> SyntaxNode<'_> {
        SyntaxNode { syntax: self, index: 0 }
    }

    /// The syntax without what means nothing: rules and settings. Parts that could not be understood are left out.
    pub fn ast(&self) -> Ast {
        ast::lower(self)
    }
}

impl<'a> SyntaxNode<'a> {
    fn node(&self) -> Node {
        self.syntax.nodes[self.index]
    }

    /// What it is.
    pub fn kind(&self) -> SyntaxKind {
        self.node().kind
    }

    /// Its tokens, those of its descendants and the trivia between them included.
    pub fn all_tokens(&self) -> &'a [Token] {
        let node = self.node();
        &self.syntax.tokens[node.first..node.end]
    }

    /// The index of its first token in [`Syntax::tokens`].
    pub fn first_token(&self) -> usize {
        self.node().first
    }

    /// Where it stands; empty if it has no tokens.
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

    /// Its text.
    pub fn text(&self) -> &'a str {
        self.span().text(&self.syntax.source)
    }

    /// The nodes right below it.
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

    /// The nodes and tokens right below it, in the order of the text, trivia left out.
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

    /// The tokens right below it, trivia left out.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + use<'a> {
        self.elements().into_iter().filter_map(|element| match element {
            Element::Token(token) => Some(token),
            Element::Node(_) => None,
        })
    }
}
