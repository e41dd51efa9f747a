//! Numbers of a few bits in bytes, from the least significant bit of each byte on.

/// Appends numbers to bytes.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    held: u64,
    bits: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, held: 0, bits: 0 }
    }

    /// Appends the lowest `bits` of a value, at most 32; those above must be zero.
    pub(super) fn put(&mut self, value: u32, bits: u32) {
        self.held |= u64::from(value) << self.bits;
        self.bits += bits;
        while self.bits >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.bits -= 8;
        }
    }

    /// Pads the last byte with zeros.
    pub(super) fn finish(self) {
        if self.bits > 0 {
            self.out.push(self.held as u8);
        }
    }
}

/// Takes numbers from the front of bytes.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    held: u64,
    bits: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, held: 0, bits: 0 }
    }

    /// The next `bits`, at most 32; none when they are not all there.
    pub(super) fn take(&mut self, bits: u32) -> Option<u32> {
        while self.bits < bits {
            let (byte, rest) = self.bytes.split_first()?;
            self.held |= u64::from(*byte) << self.bits;
            self.bits += 8;
            self.bytes = rest;
        }
        let value = self.held & ((1 << bits) - 1);
        self.held >>= bits;
        self.bits -= bits;
        Some(value as u32)
    }

    /// The bytes after those begun; none when the padding of the last is not zero.
    pub(super) fn rest(self) -> Option<&'a [u8]> {
        (self.held == 0).then_some(self.bytes)
    }
}
