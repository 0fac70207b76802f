//! The compiled policy file (the paper's output O2): versioned JSON, validated on reading.

use serde::{Deserialize, Serialize};

use crate::disjunct::disjuncts;
use crate::policy::Settings;
use crate::rule::DEPTH_MAX;
use crate::{Atom, Condition, Interest, Policy, Rule};

/// The version of the language and of the compiled form. It increases with every change that an older reader would
/// misinterpret.
pub const POLICY_VERSION: u32 = 1;

/// A compiled policy that can't be read; compile the policy again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    /// The text is not a compiled policy.
    #[error("this is not a compiled policy: {0}")]
    Malformed(String),
    /// It was written by another version.
    #[error(
        "this policy was compiled for version {found} of the language; this is version {POLICY_VERSION}: compile it again"
    )]
    Version {
        /// The version it names.
        found: u32,
    },
    /// A rule is inconsistent.
    #[error("rule {rule} of the compiled policy is damaged: {problem}")]
    Damaged {
        /// The rule, counted from one.
        rule: usize,
        /// The problem.
        problem: &'static str,
    },
}

/// The content of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyFile {
    version: u32,
    settings: Settings,
    rules: Vec<Rule>,
    interest: Interest,
}

/// The part of the file that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl From<Policy> for PolicyFile {
    fn from(policy: Policy) -> Self {
        Self {
            version: POLICY_VERSION,
            settings: policy.settings,
            rules: policy.rules,
            interest: policy.interest,
        }
    }
}

impl TryFrom<PolicyFile> for Policy {
    type Error = PolicyFileError;

    fn try_from(file: PolicyFile) -> Result<Self, PolicyFileError> {
        if file.version != POLICY_VERSION {
            return Err(PolicyFileError::Version { found: file.version });
        }
        for (index, rule) in file.rules.iter().enumerate() {
            check(rule).map_err(|problem| PolicyFileError::Damaged {
                rule: index + 1,
                problem,
            })?;
        }
        Ok(Policy::new(file.settings, file.rules, file.interest))
    }
}

impl Policy {
    /// The policy as the text of a compiled file.
    pub fn to_file(&self) -> String {
        serde_json::to_string_pretty(self).expect("a policy is always representable as JSON")
    }

    /// Reads a compiled file.
    pub fn from_file(text: &str) -> Result<Self, PolicyFileError> {
        let malformed = |error: serde_json::Error| PolicyFileError::Malformed(error.to_string());
        let Versioned { version } = serde_json::from_str(text).map_err(malformed)?;
        if version != POLICY_VERSION {
            return Err(PolicyFileError::Version { found: version });
        }
        serde_json::from_str::<PolicyFile>(text).map_err(malformed)?.try_into()
    }
}

/// Validates the invariants of evaluation: all indices are in range, and depth and width are within the checker's
/// limits.
fn check(rule: &Rule) -> Result<(), &'static str> {
    let known = |variable: usize| variable < rule.variables.len();
    if rule.variables.len() > crate::check::VARIABLES_MAX {
        return Err("it has too many variables");
    }
    if rule.atoms.len() > crate::check::ATOMS_MAX {
        return Err("its condition has too many parts");
    }
    if !rule.atoms.iter().flat_map(Atom::variables).all(known)
        || !rule
            .behaviours
            .iter()
            .flat_map(|behaviour| behaviour.variables())
            .all(known)
        || !rule.subject.is_none_or(known)
    {
        return Err("it names a variable that it does not have");
    }
    if rule.subject != crate::check::subject(&rule.behaviours) {
        return Err("its subject is not the first actor that its behaviours name");
    }
    check_condition(&rule.condition, rule.atoms.len(), DEPTH_MAX)?;
    let alternatives = disjuncts(&rule.condition).map_err(|_| "its condition has too many alternatives")?;
    let between_types =
        crate::check::between_types(rule, &alternatives).map_err(|_| "its variables are not connected")?;
    if between_types != rule.between_types {
        return Err("it is not a rule between types");
    }
    Ok(())
}

fn check_condition(condition: &Condition, atoms: usize, depth: usize) -> Result<(), &'static str> {
    match condition {
        Condition::True => Ok(()),
        Condition::Atom(atom) if *atom < atoms => Ok(()),
        Condition::Atom(_) => Err("its condition names a part that it does not have"),
        Condition::All(_) | Condition::Any(_) if depth == 0 => Err("its condition is nested too deep"),
        Condition::All(parts) | Condition::Any(parts) => parts
            .iter()
            .try_for_each(|part| check_condition(part, atoms, depth - 1)),
    }
}
