//! Varints and byte slices in postcard's encoding, written and read in place.

/// The bytes of the longest varint. Each byte has seven bits, and a continuation bit if more follow.
const NUMBER_BYTES_MAX: usize = 10;

/// The first number that takes more than eight bytes.
const EIGHT_BYTES: u64 = 1 << 56;

/// The continuation bits of eight bytes.
const CONTINUATION_BITS: u64 = 0x8080_8080_8080_8080;

/// A fixed-size buffer for the bytes before or after the arguments of a call, which are copied as a whole.
pub(super) struct HeadBuffer<const MAX: usize> {
    bytes: [u8; MAX],
    length: usize,
}

impl<const MAX: usize> HeadBuffer<MAX> {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; MAX],
            length: 0,
        }
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        match number {
            0..0x80 => self.byte(number as u8),
            0x80..EIGHT_BYTES => self.eight_bytes(number),
            _ => self.any_number(number),
        }
    }

    /// Appends a number of two to eight groups of seven bits: spreads the groups to bytes, and sets the continuation bits of all
    /// but the last.
    fn eight_bytes(&mut self, number: u64) {
        let spread = (number & 0x0fff_ffff) | ((number & 0x00ff_ffff_f000_0000) << 4);
        let spread = (spread & 0x0000_3fff_0000_3fff) | ((spread & 0x0fff_c000_0fff_c000) << 2);
        let spread = (spread & 0x007f_007f_007f_007f) | ((spread & 0x3f80_3f80_3f80_3f80) << 1);
        let groups = (70 - number.leading_zeros() as usize) / 7;
        let continued = CONTINUATION_BITS & !(u64::MAX << (8 * (groups - 1)));
        self.bytes[self.length..self.length + 8].copy_from_slice(&(spread | continued).to_le_bytes());
        self.length += groups;
    }

    #[cold]
    fn any_number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    #[inline]
    pub(super) fn slice(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The bytes that are not decoded yet. It rejects all input that postcard rejects.
pub(super) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes the next byte if it is this one.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then_some(())
    }

    #[inline]
    pub(super) fn bool(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        match *self.0.first()? {
            byte @ 0..0x80 => {
                self.0 = &self.0[1..];
                Some(byte.into())
            }
            _ => self.long_number(),
        }
    }

    /// Takes a number of several bytes; up to eight of them at once.
    fn long_number(&mut self) -> Option<u64> {
        let Some(next) = self.0.first_chunk() else {
            return self.any_number();
        };
        let next = u64::from_le_bytes(*next);
        let last = !next & CONTINUATION_BITS;
        if last == 0 {
            return self.any_number();
        }
        // The bits up to the first byte without a continuation bit.
        let spread = next & (last ^ (last - 1)) & !CONTINUATION_BITS;
        let number = (spread & 0x007f_007f_007f_007f) | ((spread & 0x7f00_7f00_7f00_7f00) >> 1);
        let number = (number & 0x0000_3fff_0000_3fff) | ((number & 0x3fff_0000_3fff_0000) >> 2);
        let number = (number & 0x0fff_ffff) | ((number & 0x0fff_ffff_0000_0000) >> 4);
        self.0 = &self.0[last.trailing_zeros() as usize / 8 + 1..];
        Some(number)
    }

    #[cold]
    fn any_number(&mut self) -> Option<u64> {
        let mut number = 0;
        for place in 0..NUMBER_BYTES_MAX {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                // Only one bit of the last byte fits into 64 bits.
                return (place + 1 < NUMBER_BYTES_MAX || byte <= 1).then_some(number);
            }
        }
        None
    }

    /// Takes a number of 32 bits, encoded in at most five bytes.
    #[inline]
    pub(super) fn short_number(&mut self) -> Option<u32> {
        let before = self.0.len();
        let number = self.number()?;
        (before - self.0.len() <= 5).then_some(())?;
        u32::try_from(number).ok()
    }

    /// Takes so many bytes.
    #[inline]
    pub(super) fn slice(&mut self, length: u64) -> Option<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(slice)
    }
}
