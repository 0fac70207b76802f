//! Parser state and primitives: the token cursor, node construction and error reporting. `grammar` holds the productions.

use super::tree::Node;
use crate::diagnostic::FOUND_MAX;
use crate::{Diagnostic, Span, SyntaxKind, Token};

pub(crate) fn parse(source: &str, tokens: &[Token], diagnostics: &mut Vec<Diagnostic>) -> Vec<Node> {
    let mut parser = Parser {
        source,
        tokens,
        diagnostics,
        nodes: Vec::new(),
        next: 0,
        consumed_end: 0,
        error_at: None,
        depth: 0,
    };
    parser.skip_trivia();
    parser.policy();
    parser.nodes
}

pub(super) struct Parser<'a> {
    source: &'a str,
    pub(super) tokens: &'a [Token],
    diagnostics: &'a mut Vec<Diagnostic>,
    pub(super) nodes: Vec<Node>,
    /// Index of the next non-trivia token.
    pub(super) next: usize,
    /// Index one past the last consumed non-trivia token.
    pub(super) consumed_end: usize,
    /// Position of the last reported error, so that one mistake is reported once.
    error_at: Option<usize>,
    /// Number of parentheses open around the next token.
    pub(super) depth: usize,
}

impl Parser<'_> {
    fn skip_trivia(&mut self) {
        while let Some(token) = self.tokens.get(self.next) {
            if token.kind == SyntaxKind::Unknown {
                // The lexer has reported this token; a second error at the same position adds nothing.
                self.next += 1;
                self.error_at = Some(self.next);
            } else if token.kind.is_trivia() {
                let error_here = self.error_at == Some(self.next);
                self.next += 1;
                if error_here {
                    self.error_at = Some(self.next);
                }
            } else {
                break;
            }
        }
    }

    pub(super) fn kind(&self) -> Option<SyntaxKind> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    pub(super) fn text(&self) -> &str {
        self.tokens
            .get(self.next)
            .map_or("", |token| token.span.text(self.source))
    }

    pub(super) fn at(&self, kind: SyntaxKind) -> bool {
        self.kind() == Some(kind)
    }

    /// The kinds of the non-trivia tokens after the next one.
    pub(super) fn ahead(&self) -> impl Iterator<Item = SyntaxKind> {
        self.tokens[(self.next + 1).min(self.tokens.len())..]
            .iter()
            .map(|token| token.kind)
            .filter(|kind| !kind.is_trivia() && *kind != SyntaxKind::Unknown)
    }

    pub(super) fn bump(&mut self) {
        debug_assert!(self.next < self.tokens.len(), "no token left to consume");
        self.next += 1;
        self.consumed_end = self.next;
        self.skip_trivia();
    }

    pub(super) fn eat(&mut self, kind: SyntaxKind) -> bool {
        let here = self.at(kind);
        if here {
            self.bump();
        }
        here
    }

    /// Consumes a token of this kind, or reports that it is missing.
    pub(super) fn expect(&mut self, kind: SyntaxKind, expected: &str) -> bool {
        let here = self.eat(kind);
        if !here {
            self.error_expected(expected);
        }
        here
    }

    pub(super) fn expect_name(&mut self, expected: &str) -> bool {
        let here = self.kind().is_some_and(SyntaxKind::is_word);
        if here {
            self.bump();
        } else {
            self.error_expected(expected);
        }
        here
    }

    pub(super) fn error_expected(&mut self, expected: &str) {
        if self.error_at == Some(self.next) || self.diagnostics.len() >= FOUND_MAX {
            return;
        }
        self.error_at = Some(self.next);
        let error = match self.tokens.get(self.next) {
            Some(token) => {
                let found: String = token.span.text(self.source).chars().take(40).collect();
                Diagnostic::error("syntax", token.span, format!("expected {expected}, found `{found}`"))
            }
            None => {
                let end = self
                    .consumed_end
                    .checked_sub(1)
                    .map_or(0, |last| self.tokens[last].span.end);
                Diagnostic::error(
                    "syntax",
                    Span::new(end, end),
                    format!("expected {expected}, but the policy ends here"),
                )
            }
        };
        self.diagnostics.push(error);
    }

    pub(super) fn open(&mut self) -> usize {
        self.nodes.push(Node {
            kind: SyntaxKind::Error,
            first: self.next,
            end: self.next,
            descendants_end: 0,
        });
        self.nodes.len() - 1
    }

    pub(super) fn close(&mut self, node: usize, kind: SyntaxKind) {
        let descendants_end = self.nodes.len();
        let opened = &mut self.nodes[node];
        opened.kind = kind;
        opened.end = self.consumed_end.max(opened.first);
        opened.descendants_end = descendants_end;
    }

    /// Skips to the next token of one of these kinds, wrapping the skipped tokens in an error node.
    pub(super) fn skip_to(&mut self, kinds: &[SyntaxKind]) {
        if self.kind().is_none_or(|kind| kinds.contains(&kind)) {
            return;
        }
        let node = self.open();
        while self.kind().is_some_and(|kind| !kinds.contains(&kind)) {
            self.bump();
        }
        self.close(node, SyntaxKind::Error);
    }
}
