//! Strings as keys have them: most are short, there are very many, and every message copies one.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A string that is kept in place if it is short, and shared else.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Kept);

/// INVARIANT: what is short is kept as such, so that equal strings are kept alike.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Kept {
    Short(ShortText),
    Long(Arc<str>),
}

impl Text {
    /// The bytes of the string. Quicker than the string itself, which is checked again if it is short.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Short(text) => text.as_bytes(),
            Kept::Long(text) => text.as_bytes(),
        }
    }

    /// How many bytes it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The string itself if it is short, else the one that is shared.
    #[inline]
    pub fn short(&self) -> Result<ShortText, &Arc<str>> {
        match &self.0 {
            Kept::Short(text) => Ok(*text),
            Kept::Long(text) => Err(text),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Kept::Short(text) => text.as_str(),
            Kept::Long(text) => text,
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ShortText::of(text).map_or_else(|| Kept::Long(text.into()), Kept::Short))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(ShortText::of(&text).map_or_else(|| Kept::Long(text.into()), Kept::Short))
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Self(ShortText::of(&text).map_or_else(|| Kept::Long(text), Kept::Short))
    }
}

impl From<ShortText> for Text {
    fn from(text: ShortText) -> Self {
        Self(Kept::Short(text))
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    /// As strings are ordered, which is as their bytes are.
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Takes the string as it comes: a short one needs no allocation.
        struct AnyString;
        impl de::Visitor<'_> for AnyString {
            type Value = Text;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(text.into())
            }
        }
        deserializer.deserialize_str(AnyString)
    }
}

/// A string of at most [`ShortText::BYTES_MAX`] bytes that does not end with a zero.
///
/// INVARIANT: it is valid UTF-8, followed by zeros. So its length need not be kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortText([u8; ShortText::BYTES_MAX]);

impl ShortText {
    /// As many as a UUID has, which keys have room for anyway.
    pub const BYTES_MAX: usize = 16;

    /// The string, if it is one of those.
    pub fn of(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (text.as_bytes().last() != Some(&0)).then_some(Self(bytes))
    }

    /// The bytes of the string.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        let zeros = u128::from_le_bytes(self.0).leading_zeros() / u8::BITS;
        &self.0[..Self::BYTES_MAX - zeros as usize]
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("it was made of a string")
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 9] = [
        "",
        "\0",
        "a",
        "a\0",
        "a\0b",
        "sixteen bytes ok",
        "seventeen bytes..",
        "sechzehn Bäume!",
        "ein Wald mit vielen Bäumen",
    ];

    #[test]
    fn it_is_the_string_that_it_was_made_of() {
        for text in TEXTS {
            let shared: Arc<str> = text.into();
            for made in [Text::from(text), text.to_owned().into(), shared.into()] {
                let again = made.short().map_or_else(|long| long.clone().into(), Text::from);
                assert_eq!(made, again);
                assert_eq!(
                    (&*made, made.as_bytes(), made.len()),
                    (text, text.as_bytes(), text.len())
                );
                assert_eq!(made.is_empty(), text.is_empty());
                assert_eq!(format!("{made:?}"), format!("{text:?}"));
            }
        }
    }

    #[test]
    fn it_is_compared_as_strings_are() {
        for one in TEXTS {
            for other in TEXTS {
                let (ours, theirs) = (Text::from(one), Text::from(other));
                assert_eq!(ours.cmp(&theirs), one.cmp(other));
                assert_eq!(ours == theirs, one == other);
            }
        }
    }

    #[test]
    fn short_ones_are_in_place_and_take_no_more_than_others() {
        let is_short = |text: &str| Text::from(text).short().is_ok();
        assert!(is_short("") && is_short("sixteen bytes ok") && is_short("a\0b"));
        assert!(!is_short("seventeen bytes..") && !is_short("a\0"));
        assert_eq!(size_of::<Text>(), 24);
        assert_eq!(size_of::<crate::Key>(), 24);
    }
}
