//! Lexer and parser: a lossless tree of the whole source, comments and errors included.
//!
//! The parser knows the grammar, not the vocabulary. Entities (`server`, `Folder(fo)`), features (`cpu`, `call`),
//! behaviours and settings are plain names that the checker resolves in its tables. A new feature or behaviour
//! therefore needs no parser change.

mod grammar;
mod kind;
mod lexer;
mod parser;
mod tree;

pub use grammar::NESTING_MAX;
pub use kind::SyntaxKind;
pub use lexer::Token;
pub use tree::{Element, SOURCE_BYTES_MAX, Syntax, SyntaxNode};
