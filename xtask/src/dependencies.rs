//! The check of `docs/dependencies.md`: the page explains exactly the crates that the workspace depends on.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use crate::metadata::Metadata;
use crate::run;

const PAGE: &str = "docs/dependencies.md";

/// Checks the page against the manifests.
pub(crate) fn check() -> Result<()> {
    let metadata = Metadata::load("Cargo.toml", &["--no-deps"])?;
    let declared = metadata.packages.iter().flat_map(|package| &package.dependencies);
    let used: BTreeSet<&str> = declared
        .filter(|dependency| dependency.path.is_none())
        .map(|dependency| dependency.name.as_str())
        .collect();
    let page = std::fs::read_to_string(run::root().join(PAGE)).with_context(|| format!("{PAGE} can't be read"))?;
    let differences = differences(&used, &explained(&page));
    if !differences.is_empty() {
        bail!("{PAGE} is not up to date:\n  {}", differences.join("\n  "));
    }
    Ok(())
}

/// The crates that the page explains: the names in code style in the first column of its tables.
fn explained(page: &str) -> BTreeSet<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|row| row.split('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

fn differences(used: &BTreeSet<&str>, explained: &BTreeSet<&str>) -> Vec<String> {
    let missing = used
        .difference(explained)
        .map(|name| format!("`{name}` is not explained"));
    let unused = explained
        .difference(used)
        .map(|name| format!("`{name}` is not used by any crate"));
    missing.chain(unused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_unused_entries_are_reported() {
        let page = "`prose` is no table\n| crate | why |\n|---|---|\n| `a`, `b` | not `c` |\n";
        let explained = explained(page);
        assert_eq!(explained, BTreeSet::from(["a", "b"]));
        let used = BTreeSet::from(["b", "d"]);
        assert_eq!(
            differences(&used, &explained),
            ["`d` is not explained", "`a` is not used by any crate"]
        );
        assert!(differences(&explained, &explained).is_empty());
    }
}
