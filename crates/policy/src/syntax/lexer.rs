//! The lexer. Tokens cover the source without gaps.

use crate::diagnostic::FOUND_MAX;
use crate::{Diagnostic, Span, SyntaxKind};

/// A token of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The kind of the token.
    pub kind: SyntaxKind,
    /// The source range.
    pub span: Span,
}

/// Splits the source into tokens. Unknown characters become tokens too, and are reported.
pub(crate) fn tokens(source: &str, diagnostics: &mut Vec<Diagnostic>) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut start = 0;
    while start < source.len() {
        let (kind, length) = token(&source[start..]);
        debug_assert!(length > 0, "every token has at least one character");
        let span = Span::new(start, start + length);
        start += length;
        match tokens.last_mut() {
            // A run of unknown characters is reported as one error.
            Some(last) if kind == SyntaxKind::Unknown && last.kind == kind => last.span.end = span.end,
            _ => tokens.push(Token { kind, span }),
        }
    }
    let errors = tokens.iter().filter_map(|token| lexical_error(token, source));
    diagnostics.extend(errors.take(FOUND_MAX));
    tokens
}

/// The kind and length in bytes of the first token of `text`, which must not be empty.
fn token(text: &str) -> (SyntaxKind, usize) {
    let mut characters = text.chars();
    let first = characters.next().expect("the caller passes non-empty text");
    let second = characters.next();
    match (first, second) {
        ('/', Some('/')) => (SyntaxKind::LineComment, text.find('\n').unwrap_or(text.len())),
        ('/', Some('*')) => (
            SyntaxKind::BlockComment,
            text[2..].find("*/").map_or(text.len(), |end| end + 4),
        ),
        ('=', Some('>')) => (SyntaxKind::Arrow, 2),
        ('⇒', _) => (SyntaxKind::Arrow, first.len_utf8()),
        ('<' | '>', Some('=')) => (SyntaxKind::Comparator, 2),
        ('<' | '>', _) => (SyntaxKind::Comparator, 1),
        ('(', _) => (SyntaxKind::ParenOpen, 1),
        (')', _) => (SyntaxKind::ParenClose, 1),
        ('{', _) => (SyntaxKind::BraceOpen, 1),
        ('}', _) => (SyntaxKind::BraceClose, 1),
        (',', _) => (SyntaxKind::Comma, 1),
        ('.', _) => (SyntaxKind::Dot, 1),
        (';', _) => (SyntaxKind::Semicolon, 1),
        (':', _) => (SyntaxKind::Colon, 1),
        ('@', _) => (SyntaxKind::At, 1),
        ('-', Some(digit)) if digit.is_ascii_digit() => (SyntaxKind::Number, 1 + number_length(&text[1..])),
        (digit, _) if digit.is_ascii_digit() => (SyntaxKind::Number, number_length(text)),
        (letter, _) if is_name_start(letter) => name(text),
        (blank, _) if is_blank(blank) => (SyntaxKind::Whitespace, length_while(text, is_blank)),
        // `->` from other languages is one error, not two.
        ('-', Some('>')) => (SyntaxKind::Unknown, 2),
        (other, _) => (SyntaxKind::Unknown, other.len_utf8()),
    }
}

fn name(text: &str) -> (SyntaxKind, usize) {
    let length = length_while(text, |character| is_name_start(character) || character.is_numeric());
    let kind = match &text[..length] {
        "and" => SyntaxKind::And,
        "or" => SyntaxKind::Or,
        "in" => SyntaxKind::In,
        "true" => SyntaxKind::True,
        _ => SyntaxKind::Name,
    };
    (kind, length)
}

/// The length of a number: digits, a fraction and an exponent, the latter two only if digits follow.
/// `80.cpu` is a number, a dot and a name.
fn number_length(text: &str) -> usize {
    let digits = |from: usize| length_while(&text[from..], |character| character.is_ascii_digit());
    let mut length = digits(0);
    if text[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['-', '+']));
        if digits(length + 1 + sign) > 0 {
            length += 1 + sign + digits(length + 1 + sign);
        }
    }
    length
}

fn length_while(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|character| !belongs(character)).unwrap_or(text.len())
}

fn is_name_start(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

/// A byte order mark counts as whitespace because some editors insert one.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

fn lexical_error(token: &Token, source: &str) -> Option<Diagnostic> {
    let text = token.span.text(source);
    match token.kind {
        SyntaxKind::BlockComment if text.len() < 4 || !text.ends_with("*/") => {
            let start = Span::new(token.span.start, token.span.start + 2);
            Some(
                Diagnostic::error("unclosed-comment", start, "this comment is never closed").help("close it with `*/`"),
            )
        }
        SyntaxKind::Unknown => {
            let shown: String = text.chars().take(20).flat_map(char::escape_debug).collect();
            let error = Diagnostic::error(
                "unknown-characters",
                token.span,
                format!("`{shown}` is not valid in a policy"),
            );
            Some(match instead_of(text) {
                Some(help) => error.help(help),
                None => error,
            })
        }
        _ => None,
    }
}

/// A suggestion for operators of other languages that the policy language spells differently.
fn instead_of(text: &str) -> Option<&'static str> {
    match text {
        "->" | "→" => Some("the arrow of a rule is `=>`"),
        "=" | "==" | "!=" | "!" => Some("values are compared with `<`, `>`, `<=` and `>=`"),
        "≥" => Some("write `>=`"),
        "≤" => Some("write `<=`"),
        "&" | "&&" | "∧" => Some("write `and`"),
        "|" | "||" | "∨" => Some("write `or`"),
        "%" => Some("a percentage is a plain number: `server.cpu.perc > 80`"),
        "#" => Some("comments start with `//`"),
        _ => None,
    }
}
