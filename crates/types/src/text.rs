//! Compact strings for keys: most are short, there are very many, and every message copies one.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A string that is stored inline if it is short, else shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Repr);

/// INVARIANT: a string that fits is stored as `Short`, so that equal strings have equal representations.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Short(ShortText),
    Long(Arc<str>),
}

impl Text {
    /// The bytes of the string. Cheaper than the `str`, which is validated again if it is short.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short(text) => text.as_bytes(),
            Repr::Long(text) => text.as_bytes(),
        }
    }

    /// The length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inline string if it is short, else the shared one.
    #[inline]
    pub fn short(&self) -> Result<ShortText, &Arc<str>> {
        match &self.0 {
            Repr::Short(text) => Ok(*text),
            Repr::Long(text) => Err(text),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Repr::Short(text) => text.as_str(),
            Repr::Long(text) => text,
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ShortText::of(text).map_or_else(|| Repr::Long(text.into()), Repr::Short))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(ShortText::of(&text).map_or_else(|| Repr::Long(text.into()), Repr::Short))
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Self(ShortText::of(&text).map_or_else(|| Repr::Long(text), Repr::Short))
    }
}

impl From<ShortText> for Text {
    fn from(text: ShortText) -> Self {
        Self(Repr::Short(text))
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    /// The order of `str`, which is that of the bytes.
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
        /// Visits a borrowed string: a short one needs no allocation.
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
/// INVARIANT: it is valid UTF-8, followed by zeros, so the length need not be stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortText([u8; ShortText::BYTES_MAX]);

impl ShortText {
    /// The size of a UUID, which keys have room for anyway.
    pub const BYTES_MAX: usize = 16;

    /// The string, if it fits.
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
        str::from_utf8(self.as_bytes()).expect("it was built from a string")
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
    fn text_round_trips() {
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
    fn text_compares_like_str() {
        for one in TEXTS {
            for other in TEXTS {
                let (ours, theirs) = (Text::from(one), Text::from(other));
                assert_eq!(ours.cmp(&theirs), one.cmp(other));
                assert_eq!(ours == theirs, one == other);
            }
        }
    }

    #[test]
    fn short_texts_are_stored_inline() {
        let is_short = |text: &str| Text::from(text).short().is_ok();
        assert!(is_short("") && is_short("sixteen bytes ok") && is_short("a\0b"));
        assert!(!is_short("seventeen bytes..") && !is_short("a\0"));
        assert_eq!(size_of::<Text>(), 24);
        assert_eq!(size_of::<crate::Key>(), 24);
    }
}
