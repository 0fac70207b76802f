//! Splits long lists into frames of bounded size.

/// Maximum number of items in one frame. Together with the byte limit it bounds the frame's size.
const PART_MAX: usize = 256;

/// Splits a list, in order, into parts of at most [`PART_MAX`] items and `bytes_max` bytes. A single larger item is a
/// part of its own.
pub(crate) fn in_parts<T>(list: Vec<T>, bytes_max: usize, bytes_of: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in list {
        let more = bytes_of(&item);
        match parts.last_mut() {
            Some(part) if part.len() < PART_MAX && bytes + more <= bytes_max => {
                bytes += more;
                part.push(item);
            }
            _ => {
                bytes = more;
                parts.push(vec![item]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_in_number_and_bytes() {
        let check = |list: Vec<usize>, expected: &[usize]| {
            let parts = in_parts(list.clone(), 10, |item| *item);
            let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
            assert_eq!(lengths, expected);
            assert_eq!(parts.concat(), list, "in order");
        };
        check(vec![], &[]);
        check(vec![4, 6, 1], &[2, 1]);
        check(vec![50, 1, 50], &[1, 1, 1]);
        check(vec![0; PART_MAX + 1], &[PART_MAX, 1]);
    }
}
