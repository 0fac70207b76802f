//! The grammar: recursive descent with a depth limit.
//!
//! ```text
//! policy     = { setting | rule }
//! setting    = name { name | number } ";"
//! rule       = { "@" name "(" number ")" } [ "rule" name ":" ] any_of "=>" behaviour { behaviour }
//! any_of     = all_of { "or" all_of }          all_of = primary { "and" primary }
//! primary    = "(" any_of ")" | "true" | entity "in" name "(" member ")" | entity segment { segment } comparator number
//! entity     = name [ "(" name ")" ]           member = entity "." name
//! segment    = "." name [ "(" member ")" ]
//! behaviour  = name "(" [ argument { "," argument } ] ")" ";"
//! argument   = entity | "{" [ name { "," name } ] "}"
//! ```

use super::parser::Parser;
use crate::SyntaxKind;

/// The maximum nesting of parentheses in a condition. Handwritten policies stay far below it, and the compiled form must
/// stay within the nesting limit of JSON parsers.
pub const NESTING_MAX: usize = 24;

/// The maximum lookahead for the end of a behaviour with an unknown name.
const LOOKAHEAD_MAX: usize = 64;

impl Parser<'_> {
    pub(super) fn policy(&mut self) {
        let node = self.open();
        self.nodes[node].first = 0;
        while self.kind().is_some() {
            let before = self.next;
            if self.at_setting() {
                self.setting();
            } else {
                self.rule();
            }
            if self.next == before {
                // No production starts with this token: skip it, or the loop would never end.
                self.error_expected("a rule");
                let error = self.open();
                self.bump();
                self.close(error, SyntaxKind::Error);
            }
        }
        self.consumed_end = self.tokens.len();
        self.close(node, SyntaxKind::Policy);
    }

    fn at_setting(&self) -> bool {
        self.at(SyntaxKind::Name)
            && self.text() != "rule"
            && matches!(self.ahead().next(), Some(SyntaxKind::Name | SyntaxKind::Number))
    }

    fn setting(&mut self) {
        let node = self.open();
        self.bump();
        while matches!(self.kind(), Some(SyntaxKind::Name | SyntaxKind::Number)) {
            self.bump();
        }
        if !self.eat(SyntaxKind::Semicolon) {
            self.error_expected("`;`");
            self.skip_to(&[SyntaxKind::Semicolon, SyntaxKind::Arrow]);
            self.eat(SyntaxKind::Semicolon);
        }
        self.close(node, SyntaxKind::Setting);
    }

    fn rule(&mut self) {
        let node = self.open();
        while self.at(SyntaxKind::At) {
            self.attribute();
        }
        if self.at(SyntaxKind::Name) && self.text() == "rule" {
            let name = self.open();
            self.bump();
            self.expect_name("the rule's name");
            self.expect(SyntaxKind::Colon, "`:` after the rule's name");
            self.close(name, SyntaxKind::RuleName);
        }
        self.any_of();
        if !self.eat(SyntaxKind::Arrow) {
            self.error_expected("`and`, `or` or `=>`");
            if !self.at_behaviour() {
                self.skip_to(&[SyntaxKind::Arrow, SyntaxKind::Semicolon]);
                self.eat(SyntaxKind::Arrow);
            }
        }
        if self.at_behaviour() {
            while self.at_behaviour() {
                self.behaviour();
            }
        } else {
            self.error_expected("a behaviour: `balance`, `reserve`, `colocate`, `separate` or `pin`");
            self.skip_to(&[SyntaxKind::Semicolon]);
            self.eat(SyntaxKind::Semicolon);
        }
        self.close(node, SyntaxKind::Rule);
    }

    fn attribute(&mut self) {
        let node = self.open();
        self.bump();
        if self.expect_name("an attribute, such as `@priority(10)`") && self.expect(SyntaxKind::ParenOpen, "`(`") {
            self.expect(SyntaxKind::Number, "a number");
            self.expect(SyntaxKind::ParenClose, "`)`");
        }
        self.close(node, SyntaxKind::Attribute);
    }

    fn any_of(&mut self) {
        let node = self.open();
        self.all_of();
        while self.eat(SyntaxKind::Or) {
            self.all_of();
        }
        self.close(node, SyntaxKind::AnyOf);
    }

    fn all_of(&mut self) {
        let node = self.open();
        self.primary();
        while self.eat(SyntaxKind::And) {
            self.primary();
        }
        self.close(node, SyntaxKind::AllOf);
    }

    fn primary(&mut self) {
        match self.kind() {
            Some(SyntaxKind::ParenOpen) => self.group(),
            Some(SyntaxKind::True) => {
                let node = self.open();
                self.bump();
                self.close(node, SyntaxKind::Always);
            }
            Some(SyntaxKind::Name) => self.comparison_or_membership(),
            _ => {
                self.error_expected("a condition");
                let stops = [
                    SyntaxKind::And,
                    SyntaxKind::Or,
                    SyntaxKind::Arrow,
                    SyntaxKind::Semicolon,
                    SyntaxKind::ParenClose,
                ];
                self.skip_to(&stops);
            }
        }
    }

    fn group(&mut self) {
        let node = self.open();
        if self.depth == NESTING_MAX {
            self.error_expected(&format!("at most {NESTING_MAX} parentheses inside each other"));
            self.skip_group();
            self.close(node, SyntaxKind::Error);
            return;
        }
        self.depth += 1;
        self.bump();
        self.any_of();
        if !self.eat(SyntaxKind::ParenClose) {
            self.error_expected("`and`, `or` or `)`");
            self.skip_to(&[SyntaxKind::ParenClose, SyntaxKind::Arrow, SyntaxKind::Semicolon]);
            self.eat(SyntaxKind::ParenClose);
        }
        self.depth -= 1;
        self.close(node, SyntaxKind::Group);
    }

    /// Consumes a parenthesised group without recursion.
    fn skip_group(&mut self) {
        let mut depth = 0_usize;
        while let Some(kind) = self.kind() {
            match kind {
                SyntaxKind::ParenOpen => depth += 1,
                SyntaxKind::ParenClose => depth -= 1,
                SyntaxKind::Arrow | SyntaxKind::Semicolon => return,
                _ => {}
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    fn comparison_or_membership(&mut self) {
        let node = self.open();
        self.entity();
        if self.eat(SyntaxKind::In) {
            if self.expect_name("`ref`") && self.expect(SyntaxKind::ParenOpen, "`(`") {
                self.member("an actor's property, such as `Folder(fo).files`");
                self.expect(SyntaxKind::ParenClose, "`)`");
            }
            self.close(node, SyntaxKind::Membership);
            return;
        }
        if !self.at(SyntaxKind::Dot) {
            self.error_expected("`.` and a feature, or `in ref(…)`");
        }
        while self.at(SyntaxKind::Dot) {
            self.segment();
        }
        if self.expect(SyntaxKind::Comparator, "`<`, `>`, `<=` or `>=`") {
            self.expect(SyntaxKind::Number, "a number");
        }
        self.close(node, SyntaxKind::Comparison);
    }

    fn entity(&mut self) {
        let node = self.open();
        if self.expect_name("a name") && self.eat(SyntaxKind::ParenOpen) {
            self.expect_name("a name for the actor");
            self.expect(SyntaxKind::ParenClose, "`)`");
        }
        self.close(node, SyntaxKind::Entity);
    }

    fn segment(&mut self) {
        let node = self.open();
        self.bump();
        if self.expect_name("a name after the dot") && self.eat(SyntaxKind::ParenOpen) {
            self.member("an actor's function, such as `Folder(fo).open`");
            self.expect(SyntaxKind::ParenClose, "`)`");
        }
        self.close(node, SyntaxKind::Segment);
    }

    fn member(&mut self, expected: &str) {
        let node = self.open();
        if self.at(SyntaxKind::Name) {
            self.entity();
            if self.expect(SyntaxKind::Dot, "`.`") {
                self.expect_name("a name after the dot");
            }
        } else {
            self.error_expected(expected);
        }
        self.close(node, SyntaxKind::Member);
    }

    /// Whether a behaviour starts here rather than the condition of the next rule. A condition continues with `.` or `in`
    /// after the closing parenthesis. An unknown name counts as a misspelt behaviour.
    fn at_behaviour(&self) -> bool {
        if !self.at(SyntaxKind::Name) {
            return false;
        }
        let mut ahead = self.ahead().take(LOOKAHEAD_MAX);
        if ahead.next() != Some(SyntaxKind::ParenOpen) {
            return false;
        }
        if crate::check::is_behaviour(self.text()) {
            return true;
        }
        let mut depth = 1_usize;
        for kind in ahead.by_ref() {
            match kind {
                SyntaxKind::ParenOpen => depth += 1,
                SyntaxKind::ParenClose => depth -= 1,
                SyntaxKind::Semicolon | SyntaxKind::Arrow => return true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        !matches!(ahead.next(), Some(SyntaxKind::Dot | SyntaxKind::In))
    }

    fn behaviour(&mut self) {
        let node = self.open();
        self.bump();
        self.bump();
        if !self.at(SyntaxKind::ParenClose) {
            self.argument();
            while self.eat(SyntaxKind::Comma) {
                self.argument();
            }
        }
        let closed = self.expect(SyntaxKind::ParenClose, "`,` or `)`");
        if !closed {
            self.skip_to(&[SyntaxKind::Semicolon, SyntaxKind::Arrow]);
        }
        self.expect(SyntaxKind::Semicolon, "`;`");
        self.close(node, SyntaxKind::Behaviour);
    }

    fn argument(&mut self) {
        if !self.at(SyntaxKind::BraceOpen) {
            if self.at(SyntaxKind::Name) {
                self.entity();
            } else {
                self.error_expected("an actor, a resource or a set of types");
                self.skip_to(&[SyntaxKind::Comma, SyntaxKind::ParenClose, SyntaxKind::Semicolon]);
            }
            return;
        }
        let node = self.open();
        self.bump();
        while self.at(SyntaxKind::Name) {
            self.entity();
            if !self.eat(SyntaxKind::Comma) {
                break;
            }
        }
        self.expect(SyntaxKind::BraceClose, "`,` or `}`");
        self.close(node, SyntaxKind::Set);
    }
}
