//! Diagnostics: errors and warnings with source locations and help, and their rendering.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use elastin_types::Snapshot;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::span::line_and_column;

/// Maximum number of diagnostics that one run reports, which also bounds memory on bad input.
pub const DIAGNOSTICS_MAX: usize = 100;

/// Maximum number of diagnostics kept during a compilation. Beyond it, the checker stops, so that a megabyte of bad input
/// does not fill the memory.
pub(crate) const FOUND_MAX: usize = 10 * DIAGNOSTICS_MAX;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy cannot be used.
    Error,
    /// The policy can be used, but is probably not as intended.
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// The kind of diagnostic, such as `unknown-type`. It does not change between versions.
    pub code: String,
    /// The mistake, in one sentence.
    pub message: String,
    /// The source locations, the main one first.
    pub labels: Vec<Label>,
    /// The remedy.
    pub help: Option<String>,
    /// A snapshot in which the conflict of the warning occurs.
    pub witness: Option<Snapshot>,
}

/// A source location with a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// The source range.
    pub span: Span,
    /// The text of the label; may be empty.
    pub text: String,
}

impl Diagnostic {
    /// An error at a source range.
    pub fn error(code: &str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, span, message.into())
    }

    /// A warning at a source range.
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

    /// Adds another source range.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        let text = text.into();
        self.labels.push(Label { span, text });
        self
    }

    /// Adds the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The main source range.
    pub fn span(&self) -> Span {
        self.labels[0].span
    }
}

/// All diagnostics of one compilation, in source order.
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

/// A diagnostic for tools, with line and column instead of a byte range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Located<'a> {
    /// The policy's file.
    pub file: &'a str,
    /// The one-based line of the main source range.
    pub line: usize,
    /// The one-based column of the main source range, in characters.
    pub column: usize,
    /// The diagnostic.
    #[serde(flatten)]
    pub diagnostic: &'a Diagnostic,
}

impl Diagnostics {
    /// Sorts diagnostics by source range, errors before warnings, and keeps the first [`DIAGNOSTICS_MAX`].
    pub(crate) fn new(file_name: &str, source: &str, mut items: Vec<Diagnostic>) -> Self {
        items.sort_by_key(|item| (item.span().start, item.severity, item.span().end));
        // If not all can be kept, errors come first: a warning must not hide why a policy was refused.
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

    /// Whether there is no diagnostic.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the policy cannot be used.
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|item| item.severity == Severity::Error)
    }

    /// Renders them as text without colours.
    pub fn render(&self) -> String {
        self.render_with(&Renderer::plain())
    }

    /// Renders them for a terminal, with colours.
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
