//! Text to syntax: a lossless tree of the whole text, comments and mistakes included.
//!
//! The parser knows the shape of the language, not its words: entities (`server`, `Folder(fo)`), features (`cpu`, `call`),
//! behaviours and settings are names to it, which the checker looks up in its tables. So a new feature or behaviour does
//! not touch the parser.

mod grammar;
mod kind;
mod lexer;
mod parser;
mod tree;

pub use grammar::NESTING_MAX;
pub use kind::SyntaxKind;
pub use lexer::Token;
pub use tree::{Element, SOURCE_BYTES_MAX, Syntax, SyntaxNode};
