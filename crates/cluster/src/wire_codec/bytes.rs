//! Numbers and bytes as postcard has them, written to and read from where they lie.

/// The bytes of the longest number: seven bits in each, and a mark if more follow.
const NUMBER_BYTES_MAX: usize = 10;

/// The first number that takes more than eight bytes.
const EIGHT_BYTES: u64 = 1 << 56;

/// The marks of eight bytes.
const MARKS: u64 = 0x8080_8080_8080_8080;

/// The bytes that go before, or after, what is copied as a whole.
pub(super) struct Head<const MAX: usize> {
    bytes: [u8; MAX],
    length: usize,
}

impl<const MAX: usize> Head<MAX> {
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

    /// A number of up to eight groups of seven bits, all at once: they are moved apart, and all but the last get their mark.
    fn eight_bytes(&mut self, number: u64) {
        let apart = (number & 0x0fff_ffff) | ((number & 0x00ff_ffff_f000_0000) << 4);
        let apart = (apart & 0x0000_3fff_0000_3fff) | ((apart & 0x0fff_c000_0fff_c000) << 2);
        let apart = (apart & 0x007f_007f_007f_007f) | ((apart & 0x3f80_3f80_3f80_3f80) << 1);
        let groups = (70 - number.leading_zeros() as usize) / 7;
        let marks = MARKS & !(u64::MAX << (8 * (groups - 1)));
        self.bytes[self.length..self.length + 8].copy_from_slice(&(apart | marks).to_le_bytes());
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

/// What is left to be read. Nothing is given of what postcard would not take.
pub(super) struct Reading<'a>(&'a [u8]);

impl<'a> Reading<'a> {
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

    /// The next byte, if it is this one.
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

    /// A number of several bytes; of up to eight, all at once.
    fn long_number(&mut self) -> Option<u64> {
        let Some(next) = self.0.first_chunk() else {
            return self.any_number();
        };
        let next = u64::from_le_bytes(*next);
        let last = !next & MARKS;
        if last == 0 {
            return self.any_number();
        }
        // The bits up to the mark that is missing.
        let apart = next & (last ^ (last - 1)) & !MARKS;
        let number = (apart & 0x007f_007f_007f_007f) | ((apart & 0x7f00_7f00_7f00_7f00) >> 1);
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
                // Of the last byte only one bit has room.
                return (place + 1 < NUMBER_BYTES_MAX || byte <= 1).then_some(number);
            }
        }
        None
    }

    /// A number of 32 bits, in no more bytes than these may take.
    #[inline]
    pub(super) fn short_number(&mut self) -> Option<u32> {
        let before = self.0.len();
        let number = self.number()?;
        (before - self.0.len() <= 5).then_some(())?;
        u32::try_from(number).ok()
    }

    /// So many bytes.
    #[inline]
    pub(super) fn slice(&mut self, length: u64) -> Option<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(slice)
    }
}
