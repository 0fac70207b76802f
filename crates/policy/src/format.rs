//! The policy formatter. It is idempotent and keeps every comment.
//!
//! A rule that fits stays on one line. Otherwise its condition is filled, broken after `and` and `or`, and its behaviours
//! follow on lines of their own:
//!
//! ```text
//! @priority(45) rule hot_folder:
//!     server.cpu.perc > 80 and client.call(Folder(fo).open).perc > 40 and
//!     File(fi) in ref(fo.files)
//!         => reserve(fo, cpu); colocate(fo, fi);
//! ```
//! A comment within a rule stays behind the part that it follows, or on a line of its own if it had one.

use crate::{Diagnostics, Syntax, SyntaxKind, SyntaxNode, Token};

/// The target line width.
const WIDTH: usize = 100;
const INDENT: usize = 4;

/// Formats a policy. No schema is needed.
///
/// # Errors
/// If the policy does not parse.
pub fn format(file_name: &str, source: &str) -> Result<String, Diagnostics> {
    let syntax = Syntax::parse(source);
    if !syntax.diagnostics().is_empty() {
        return Err(Diagnostics::new(
            file_name,
            syntax.source(),
            syntax.diagnostics().to_vec(),
        ));
    }
    let mut writer = Writer::default();
    let mut next_token = 0;
    for item in syntax.root().children() {
        writer.between(source, &syntax.tokens()[next_token..item.first_token()]);
        match item.kind() {
            SyntaxKind::Rule => writer.rule(source, item),
            _ => writer.setting(source, item),
        }
        next_token = item.first_token() + item.all_tokens().len();
    }
    writer.between(source, &syntax.tokens()[next_token..]);
    Ok(writer.finish())
}

#[derive(Default)]
struct Writer {
    text: String,
    /// Whether the line has something on it that a comment can follow.
    in_line: bool,
}

/// An unbreakable piece of a rule, with the comments before it.
struct Word {
    comments: Vec<Comment>,
    text: String,
    part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Condition,
    Behaviour,
}

struct Comment {
    text: String,
    /// Whether it follows something on the same line.
    trailing: bool,
}

impl Writer {
    fn finish(mut self) -> String {
        self.end_line();
        self.text
    }

    fn end_line(&mut self) {
        if self.in_line {
            self.text.push('\n');
            self.in_line = false;
        }
    }

    /// A line, indented, that stays open for a comment.
    fn line(&mut self, indent: usize, line: &str) {
        self.end_line();
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push_str(line);
        self.in_line = true;
    }

    fn comment(&mut self, indent: usize, comment: &Comment) {
        if comment.trailing && self.in_line {
            self.text.push(' ');
            self.text.push_str(&comment.text);
        } else {
            self.line(indent, &comment.text);
        }
        if comment.text.starts_with("//") {
            // A line comment ends its line.
            self.end_line();
        }
    }

    /// Writes the trivia between two rules: comments, and runs of blank lines collapsed to one.
    fn between(&mut self, source: &str, trivia: &[Token]) {
        let mut line_ends = 0;
        for token in trivia {
            let text = token.span.text(source);
            if !token.kind.is_comment() {
                line_ends += text.matches('\n').count();
                continue;
            }
            self.blank_line(line_ends);
            let comment = Comment {
                text: text.trim_end().into(),
                trailing: line_ends == 0,
            };
            self.comment(0, &comment);
            line_ends = 0;
        }
        let at_end = trivia.last().is_none_or(|token| token.span.end == source.len());
        if !at_end {
            self.blank_line(line_ends);
        }
    }

    fn blank_line(&mut self, line_ends: usize) {
        if line_ends > 1 && !self.text.is_empty() {
            self.end_line();
            self.text.push('\n');
        }
    }

    fn setting(&mut self, source: &str, node: SyntaxNode<'_>) {
        self.end_line();
        for word in words(source, node) {
            for comment in &word.comments {
                self.comment(0, comment);
            }
            self.line(0, &word.text);
        }
    }

    fn rule(&mut self, source: &str, node: SyntaxNode<'_>) {
        self.end_line();
        let mut words = words(source, node);
        // A comment within the first part comes before the rule.
        let first = words.first_mut().map(|first| std::mem::take(&mut first.comments));
        for comment in first.iter().flatten() {
            self.comment(0, comment);
        }
        let header = words.iter().take_while(|word| word.part == Part::Header).count();
        let indent = if header > 0 { INDENT } else { 0 };
        self.fill(0, 0, &words[..header]);
        let body = &words[header..];
        let whole: usize = body.iter().map(|word| word.text.chars().count() + 1).sum();
        if indent + whole <= WIDTH + 1 && body.iter().all(|word| word.comments.is_empty()) {
            let texts: Vec<&str> = body.iter().map(|word| word.text.as_str()).collect();
            self.line(indent, &texts.join(" "));
            return;
        }
        let condition = body.iter().take_while(|word| word.part == Part::Condition).count();
        self.fill(indent, indent, &body[..condition]);
        self.fill(indent + INDENT, indent + INDENT + "=> ".len(), &body[condition..]);
    }

    /// Writes as many words per line as fit; a comment ends its line.
    fn fill(&mut self, indent: usize, later_indent: usize, words: &[Word]) {
        let mut line = String::new();
        let mut line_indent = indent;
        for word in words {
            let width = line_indent + line.chars().count() + 1 + word.text.chars().count();
            if !line.is_empty() && (width > WIDTH || !word.comments.is_empty()) {
                self.line(line_indent, &std::mem::take(&mut line));
                line_indent = later_indent;
            }
            for comment in &word.comments {
                self.comment(line_indent, comment);
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word.text);
        }
        if !line.is_empty() {
            self.line(line_indent, &line);
        }
    }
}

/// The words of a rule or a setting.
fn words(source: &str, node: SyntaxNode<'_>) -> Vec<Word> {
    let is_header = |child: &SyntaxNode<'_>| matches!(child.kind(), SyntaxKind::Attribute | SyntaxKind::RuleName);
    let header_end = node
        .children()
        .filter(is_header)
        .last()
        .map_or(0, |last| last.span().end);
    let mut words: Vec<Word> = Vec::new();
    let mut open = false;
    let mut part = Part::Header;
    let mut comments: Vec<Comment> = Vec::new();
    let mut line_ends = 0;
    let mut previous: Option<SyntaxKind> = None;
    for token in node.all_tokens() {
        let text = token.span.text(source);
        if token.kind.is_comment() {
            comments.push(Comment {
                text: text.trim_end().into(),
                trailing: line_ends == 0,
            });
            line_ends = 0;
            continue;
        }
        if token.kind.is_trivia() {
            line_ends += text.matches('\n').count();
            continue;
        }
        line_ends = 0;
        if token.span.start >= header_end && part == Part::Header {
            part = Part::Condition;
            open = false;
        }
        if token.kind == SyntaxKind::Arrow {
            part = Part::Behaviour;
            open = false;
        }
        if !open {
            words.push(Word {
                comments: Vec::new(),
                text: String::new(),
                part,
            });
            previous = None;
        }
        let word = words.last_mut().expect("a word was begun");
        word.comments.append(&mut comments);
        if previous.is_some_and(|previous| needs_space(previous, token.kind)) {
            word.text.push(' ');
        }
        if token.kind == SyntaxKind::BraceClose && previous == Some(SyntaxKind::Comma) {
            word.text.pop();
        }
        let is_arrow = token.kind == SyntaxKind::Arrow;
        word.text.push_str(if is_arrow { "=>" } else { text });
        // After a dot, `and` and `or` are names.
        let joins = matches!(token.kind, SyntaxKind::And | SyntaxKind::Or) && previous != Some(SyntaxKind::Dot);
        open = !joins && token.kind != SyntaxKind::Semicolon;
        previous = Some(token.kind);
    }
    words
}

fn needs_space(previous: SyntaxKind, next: SyntaxKind) -> bool {
    use SyntaxKind as Kind;
    match (previous, next) {
        (Kind::ParenOpen | Kind::BraceOpen | Kind::Dot | Kind::At, _) => false,
        (_, Kind::ParenClose | Kind::BraceClose | Kind::Dot | Kind::Comma | Kind::Semicolon | Kind::Colon) => false,
        // A parenthesis after a name belongs to it; after anything else it groups.
        (Kind::Name, Kind::ParenOpen) => false,
        _ => true,
    }
}
