//! The kinds of tokens and nodes.

/// The kind of a token or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxKind {
    /// Whitespace and line breaks.
    Whitespace,
    /// `// …` to the end of the line.
    LineComment,
    /// `/* … */`.
    BlockComment,
    /// A name.
    Name,
    /// A number.
    Number,
    /// `(`
    ParenOpen,
    /// `)`
    ParenClose,
    /// `{`
    BraceOpen,
    /// `}`
    BraceClose,
    /// `,`
    Comma,
    /// `.`
    Dot,
    /// `;`
    Semicolon,
    /// `:`
    Colon,
    /// `@`
    At,
    /// `=>` or `⇒`
    Arrow,
    /// `<`, `>`, `<=` or `>=`
    Comparator,
    /// `and`
    And,
    /// `or`
    Or,
    /// `in`
    In,
    /// `true`
    True,
    /// Characters that start no token of the language.
    Unknown,

    /// Node: the whole file.
    Policy,
    /// Node: a setting, such as `period 80 s;`.
    Setting,
    /// Node: a rule.
    Rule,
    /// Node: `@priority(10)`.
    Attribute,
    /// Node: `rule name:`.
    RuleName,
    /// Node: conditions joined by `or`; also around a single one.
    AnyOf,
    /// Node: conditions joined by `and`; also around a single one.
    AllOf,
    /// Node: a condition in parentheses.
    Group,
    /// Node: the condition `true`.
    Always,
    /// Node: a feature compared to a number.
    Comparison,
    /// Node: `actor in ref(actor.property)`.
    Membership,
    /// Node: a name with an optional name in parentheses, such as `Folder(fo)`.
    Entity,
    /// Node: `.name`, with an optional argument in parentheses, such as `.call(Folder.open)`.
    Segment,
    /// Node: an entity with one name after it, such as `Folder(fo).open`.
    Member,
    /// Node: a behaviour with its `;`.
    Behaviour,
    /// Node: names in braces.
    Set,
    /// Node: tokens that could not be parsed.
    Error,
}

impl SyntaxKind {
    /// Whether it is whitespace or a comment.
    pub fn is_trivia(self) -> bool {
        matches!(
            self,
            SyntaxKind::Whitespace | SyntaxKind::LineComment | SyntaxKind::BlockComment
        )
    }

    /// Whether it is a comment.
    pub fn is_comment(self) -> bool {
        matches!(self, SyntaxKind::LineComment | SyntaxKind::BlockComment)
    }

    /// Whether it is a name, or a keyword that may serve as one after a dot.
    pub fn is_word(self) -> bool {
        matches!(
            self,
            SyntaxKind::Name | SyntaxKind::And | SyntaxKind::Or | SyntaxKind::In | SyntaxKind::True
        )
    }
}
