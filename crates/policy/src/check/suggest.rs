//! "Did you mean": the known name that is closest to a misspelt one.

/// Maximum length of compared names. It bounds the quadratic cost of a comparison.
const NAME_CHARACTERS_MAX: usize = 64;

/// The known name with the smallest edit distance, if it is close enough to be a misspelling.
pub(super) fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    if length > NAME_CHARACTERS_MAX {
        return None;
    }
    known
        .into_iter()
        .filter(|name| name.chars().count() <= NAME_CHARACTERS_MAX)
        .map(|name| (distance(&written.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= (length / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// A help text with the closest name, or with all names if none is close.
pub(super) fn help<'a>(written: &str, what: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    const SHOWN_MAX: usize = 12;
    if let Some(name) = closest(written, known.clone()) {
        return format!("did you mean `{name}`?");
    }
    let mut names: Vec<String> = known.into_iter().map(|name| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(SHOWN_MAX);
    names.truncate(SHOWN_MAX);
    match (names.len(), more) {
        (0, _) => format!("there are no {what}"),
        (1, _) => format!("there is only {}", names[0]),
        (_, 0) => format!("there are the {what} {}", names.join(", ")),
        (_, more) => format!("there are the {what} {} and {more} more", names.join(", ")),
    }
}

/// The edit distance with transpositions of neighbours (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous = None;
    for (row, letter) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let change = last[column] + usize::from(letter != *other);
            let mut best = change.min(last[column + 1] + 1).min(current[column] + 1);
            if column > 0 && previous == Some(*other) && letter == right[column - 1] {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
        previous = Some(letter);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_by_one_letter_is_recognised() {
        let known = ["Folder", "File", "Session"];
        for written in ["Foldr", "folder", "Fodler", "FFolder", "Solder"] {
            assert_eq!(closest(written, known), Some("Folder"), "{written}");
        }
        assert_eq!(closest("Partition", known), None);
        assert_eq!(
            help("Partition", "types", known),
            "there are the types `Folder`, `File`, `Session`"
        );
    }
}
