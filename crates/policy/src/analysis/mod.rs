//! Sense: what a policy that compiles probably does not mean.

use elastin_types::Schema;

use crate::ast::Ast;
use crate::{Diagnostic, Policy};

/// The warnings about a policy.
pub(crate) fn warnings(_policy: &Policy, _ast: &Ast, _schema: &Schema) -> Vec<Diagnostic> {
    Vec::new()
}
