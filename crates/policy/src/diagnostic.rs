//! What the compiler tells people: errors and warnings with their places, a help, and how to show them.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use elastin_types::Snapshot;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::span::line_and_column;

/// How many diagnostics one run reports. Nobody reads more, and bad input must not fill the memory with them.
pub const DIAGNOSTICS_MAX: usize = 100;

/// How many diagnostics are kept while a policy is compiled. Beyond it nothing more is looked for: bad input of a megabyte
/// must not make a million of them.
pub(crate) const FOUND_MAX: usize = 10 * DIAGNOSTICS_MAX;

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy can't be used.
    Error,
    /// The policy can be used, but probably does not say what was meant.
    Warning,
}

/// One thing that the compiler has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How grave it is.
    pub severity: Severity,
    /// A short name of this kind of diagnostic that does not change between versions, such as `unknown-type`.
    pub code: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The places that it concerns, the main one first.
    pub labels: Vec<Label>,
    /// What to do about it.
    pub help: Option<String>,
    /// A situation in which the policy does what the warning says.
    pub witness: Option<Snapshot>,
}

/// A place in the policy with what is to be said about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// What is to be said about it; may be empty.
    pub text: String,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: &str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, span, message.into())
    }

    /// A warning at a place.
    pub fn warning(code: &str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, span, message.into())
    }

    fn new(severity: Severity, code: &str, span: Span, message: String) -> Self {
        let label = Label {
            span,
            text: String::new(),
        };
        Self {
            severity,
            code: code.into(),
            message,
            labels: vec![label],
            help: None,
            witness: None,
        }
    }

    /// Shows another place.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        let text = text.into();
        self.labels.push(Label { span, text });
        self
    }

    /// Says what to do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The main place.
    pub fn span(&self) -> Span {
        self.labels[0].span
    }
}

/// All that one run of the compiler has to say about one policy, in the order of the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnostics {
    file_name: String,
    source: String,
    items: Vec<Diagnostic>,
    left_out: usize,
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.render())
    }
}

impl std::error::Error for Diagnostics {}

/// A diagnostic as tools want it: with line and column instead of a byte range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Located<'a> {
    /// The policy's file.
    pub file: &'a str,
    /// The line of the main place, counted from one.
    pub line: usize,
    /// The column of the main place in characters, counted from one.
    pub column: usize,
    /// The diagnostic.
    #[serde(flatten)]
    pub diagnostic: &'a Diagnostic,
}

impl Diagnostics {
    /// Puts diagnostics about a policy in the order of its text, errors before warnings at the same place, and keeps the
    /// first [`DIAGNOSTICS_MAX`].
    pub(crate) fn new(file_name: &str, source: &str, mut items: Vec<Diagnostic>) -> Self {
        items.sort_by_key(|item| (item.span().start, item.severity, item.span().end));
        // Errors come first when not all can be kept: a warning never hides why a policy was refused.
        if items.len() > DIAGNOSTICS_MAX {
            items.sort_by_key(|item| item.severity);
        }
        let left_out = items.len().saturating_sub(DIAGNOSTICS_MAX);
        items.truncate(DIAGNOSTICS_MAX);
        Self {
            file_name: file_name.into(),
            source: source.into(),
            items,
            left_out,
        }
    }

    /// The diagnostics.
    pub fn items(&self) -> &[Diagnostic] {
        &self.items
    }

    /// The diagnostics with line and column, for tools.
    pub fn located(&self) -> impl Iterator<Item = Located<'_>> {
        self.items.iter().map(|diagnostic| {
            let (line, column) = line_and_column(&self.source, diagnostic.span().start);
            Located {
                file: &self.file_name,
                line,
                column,
                diagnostic,
            }
        })
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the policy can't be used.
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|item| item.severity == Severity::Error)
    }

    /// Shows them for people, without colours.
    pub fn render(&self) -> String {
        self.render_with(&Renderer::plain())
    }

    /// Shows them for people at a terminal, with colours.
    pub fn render_styled(&self) -> String {
        self.render_with(&Renderer::styled())
    }

    fn render_with(&self, renderer: &Renderer) -> String {
        let mut text = String::new();
        for item in &self.items {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&renderer.render(&[self.group(item)]));
        }
        if self.left_out > 0 {
            text.push_str(&format!("\n\nand {} more", self.left_out));
        }
        text
    }

    fn group<'a>(&'a self, item: &'a Diagnostic) -> Group<'a> {
        let level = match item.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let annotations = item.labels.iter().enumerate().map(|(index, label)| {
            let kind = if index == 0 {
                AnnotationKind::Primary
            } else {
                AnnotationKind::Context
            };
            let annotation = kind.span(label.span.start..label.span.end);
            if label.text.is_empty() {
                annotation
            } else {
                annotation.label(label.text.as_str())
            }
        });
        let snippet = Snippet::source(self.source.as_str())
            .path(self.file_name.as_str())
            .annotations(annotations);
        let group = level
            .primary_title(item.message.as_str())
            .id(item.code.as_str())
            .element(snippet);
        match &item.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
            None => group,
        }
    }
}
