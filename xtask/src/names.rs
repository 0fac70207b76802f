//! The check of names: identifiers and file names use the terms of `docs/glossary.md`, not the private words that once
//! stood for them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run;

/// Retired words, and the terms to use instead.
const RETIRED: &[(&str, &str)] = &[
    ("seat", "cell"),
    ("seats", "cells"),
    ("errand", "inline task"),
    ("errands", "inline tasks"),
    ("entrusted", "caller resume"),
    ("entrusts", "caller resumes"),
    ("lent", "shared instance"),
    ("desk", "command context, service"),
    ("ear", "inbound handler, receiver"),
    ("ears", "inbound handlers, receivers"),
    ("hands", "command executor"),
    ("caution", "backoff"),
    ("cautious", "backoff"),
    ("habit", "turn cost"),
    ("habits", "turn cost"),
    ("told", "notified, reported, received"),
    ("muted", "disarmed"),
    ("mute", "disarm"),
    ("unmute", "rearm"),
    ("looks", "busy-polls"),
    ("looked", "busy-polled"),
    ("looking", "busy poll"),
    ("lookout", "leader hand-off"),
    ("gathers", "batches"),
    ("gathered", "batched"),
    ("gathering", "call batching"),
    ("linger", "spin"),
    ("brought", "delivered"),
    ("distrust", "peer penalty"),
    ("office", "admin service"),
    ("patience", "retry limit"),
    ("patiently", "with retries"),
    ("whereabouts", "directory entry"),
    ("sharer", "interleaved turn"),
    ("sharers", "interleaved turns"),
    ("heard", "received"),
    ("hears", "receives"),
    ("ringer", "timer waker"),
    ("stirring", "sleep state"),
    ("who", "the role itself: caller, sender, owner"),
    ("whoever", "the role itself: caller, sender, owner"),
    ("stranger", "untrusted peer"),
    ("strangers", "untrusted peers"),
    ("nonsense", "malformed"),
    ("bell", "reminder, waker"),
    ("bells", "reminders, wakers"),
    ("bring", "deliver"),
    ("brings", "delivers"),
    ("dice", "seeded generator"),
    ("everybody", "the role itself: caller, sender, owner"),
    ("hear", "receive"),
    ("hearing", "receiving"),
    ("laid", "put"),
    ("lend", "shared instance"),
    ("lending", "shared instance"),
    ("lends", "shares an instance"),
    ("nap", "sleep"),
    ("naps", "sleeps"),
    ("outlook", "read hint"),
    ("somebody", "the role itself: caller, sender, owner"),
    ("soon", "spin wait"),
    ("whom", "the role itself: caller, sender, owner"),
];

/// Identifiers of other crates that contain a retired word.
const ALLOWED_IDENTIFIERS: &[&str] = &["set_zero_linger"];

/// Folders with sources; `target` folders within them are skipped.
const SOURCES: &[&str] = &["crates", "examples", "bench", "fuzz", "xtask"];

/// Checks the names of every source file, and the sentences of every document.
pub(crate) fn check() -> Result<()> {
    let retired: BTreeMap<&str, &str> = RETIRED.iter().copied().collect();
    let mut violations = Vec::new();
    for folder in SOURCES {
        for (path, text) in files(folder, "rs")? {
            // This file lists the retired words.
            if path != "xtask/src/names.rs" {
                violations.extend(violations_in(&path, &text, &retired));
            }
        }
    }
    let mut documents = files("docs", "md")?;
    for page in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"] {
        documents.push((page.to_owned(), read(page)?));
    }
    for (path, text) in documents {
        violations.extend(hidden_subjects(&path, &text));
    }
    if violations.is_empty() {
        return Ok(());
    }
    let shown = violations.len().min(SHOWN_MAX);
    bail!(
        "{} names or sentences to change; the terms are in docs/glossary.md:\n  {}",
        violations.len(),
        violations[..shown].join("\n  ")
    );
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(run::root().join(path)).with_context(|| format!("{path} can't be read"))
}

/// The files below a folder with this extension, by their path from the root, with their text.
fn files(folder: &str, extension: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(run::root().join(&folder)).with_context(|| format!("{folder} can't be read"))?;
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = format!("{folder}/{name}");
            if entry.file_type()?.is_dir() {
                if name != "target" {
                    folders.push(path);
                }
            } else if Path::new(&name).extension().is_some_and(|found| found == extension) {
                let text = read(&path)?;
                found.push((path, text));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Sentences whose subject is "who", "whoever" or "what": they hide the thing that acts.
fn hidden_subjects(path: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let opens = |word: &str| {
            let start = line.trim_start_matches(['-', '*', '|', '>', ' ']).starts_with(word);
            start || line.contains(&format!(". {word}")) || line.contains(&format!("| {word}"))
        };
        let hides = ["Who ", "Whoever ", "What "].into_iter().find(|word| opens(word));
        if let Some(word) = hides.filter(|_| !in_code && !line.contains('?')) {
            violations.push(format!(
                "{path}:{}: a sentence starts with `{}`; name its subject",
                number + 1,
                word.trim_end()
            ));
        }
    }
    violations
}

/// So many violations are printed at most.
const SHOWN_MAX: usize = 40;

fn violations_in(path: &str, text: &str, retired: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut violations = Vec::new();
    let stem = Path::new(path).with_extension("");
    for part in stem.iter().filter_map(|part| part.to_str()) {
        if let Some((word, term)) = retired_word(part, retired) {
            violations.push(format!("{path}: the file name has `{word}`; write {term}"));
        }
    }
    for (number, line) in text.lines().enumerate() {
        for identifier in identifiers(line) {
            if let Some((word, term)) = retired_word(identifier, retired) {
                let number = number + 1;
                violations.push(format!("{path}:{number}: `{identifier}` has `{word}`; write {term}"));
            }
        }
    }
    violations
}

fn retired_word<'a>(identifier: &str, retired: &BTreeMap<&'a str, &'a str>) -> Option<(String, &'a str)> {
    if ALLOWED_IDENTIFIERS.contains(&identifier) {
        return None;
    }
    words(identifier).find_map(|word| retired.get(word.as_str()).map(|term| (word, *term)))
}

/// The identifiers of a line, without its strings and its comment.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split('"')
        .step_by(2)
        .flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
}

/// The words of an identifier in lower case: split at underscores, hyphens and capitals.
fn words(identifier: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before_is_lower = false;
    for c in identifier.chars() {
        if c == '_' || c == '-' || (c.is_uppercase() && before_is_lower) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        before_is_lower = c.is_lowercase();
    }
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[&str]) {
        let retired = BTreeMap::from([("desk", "context"), ("ear", "receiver")]);
        assert_eq!(violations_in(path, text, &retired), expected);
    }

    #[test]
    fn retired_words_are_found_in_identifiers_and_file_names() {
        check(
            "src/lib.rs",
            "let front_desk = CommandDesk::new();",
            &[
                "src/lib.rs:1: `front_desk` has `desk`; write context",
                "src/lib.rs:1: `CommandDesk` has `desk`; write context",
            ],
        );
        check(
            "src/ear.rs",
            "",
            &["src/ear.rs: the file name has `ear`; write receiver"],
        );
    }

    #[test]
    fn sentences_without_a_named_subject_are_found() {
        let text = "Who calls waits.\nA call waits. What comes is queued.\n# What is a cell?\n```\nWhat now\n```\nSomewhat odd";
        let expected = [
            "a.md:1: a sentence starts with `Who`; name its subject",
            "a.md:2: a sentence starts with `What`; name its subject",
        ];
        assert_eq!(hidden_subjects("a.md", text), expected);
    }

    #[test]
    fn parts_of_words_strings_and_comments_are_no_violations() {
        check("src/early.rs", "let early = \"desk\"; // the desk", &[]);
    }
}
