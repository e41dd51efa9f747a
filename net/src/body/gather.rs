//! The buffer that a body's frames are gathered in, once each. It is placed so that what follows
//! the JSON part starts at a multiple of [`ALIGNMENT`] in memory: a session then reads the first
//! binary tensor where it lies, and so do all others whose offset from it suits their type. It
//! must not take memory for a length that nobody has announced or sent.

use bytes::Bytes;

use super::BodyError;

/// Where the binary part of a gathered body starts in memory: at a multiple of this, bytes.
pub const ALIGNMENT: usize = 64;

/// The strictest alignment that an element of a tensor needs, bytes.
const ELEMENT: usize = 8;

/// The smallest buffer, bytes.
const LEAST: usize = 4096;

/// What a peer must have sent before the length that it announced is reserved, bytes.
pub(super) const EARNED: usize = 64 << 10;

/// Gathers the parts of one body, at most `limit` bytes.
///
/// Once 64 KiB are there the announced length is reserved whole, so that what follows never moves. A peer that announces much and sends that little holds addresses, at most `limit` a
/// request, and hardly any memory: pages that nothing was written to take none (a test holds the
/// program's allocator to it). Where the system refuses addresses, and where nothing was announced,
/// the buffer doubles, and is at most twice what has arrived (4 KiB at least).
#[derive(Debug)]
pub struct Gather {
    limit: usize,
    announced: usize,
    json_len: Option<usize>,
    /// `pad` bytes that are not part of the body, then what has arrived.
    data: Vec<u8>,
    pad: usize,
}

impl Gather {
    /// An empty buffer that takes no memory yet. `json_len` is the length of the JSON part when a
    /// binary part follows it, `announced` the length that the peer promised (0: none).
    #[must_use]
    pub fn new(limit: usize, json_len: Option<usize>, announced: usize) -> Self {
        Self { limit, announced: announced.min(limit), json_len, data: Vec::new(), pad: 0 }
    }

    /// Bytes of the body that have arrived.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len() - self.pad
    }

    /// Whether nothing has arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `part` behind what has arrived.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] when the body would pass the limit; then nothing is copied.
    pub fn push(&mut self, part: &[u8]) -> Result<(), BodyError> {
        if part.len() > self.limit - self.len() {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        self.make_room(part.len());
        self.data.extend_from_slice(part);
        Ok(())
    }

    /// Makes room for `more` bytes that are here and are pushed next.
    pub(super) fn make_room(&mut self, more: usize) {
        let needed = self.len().saturating_add(more).min(self.limit);
        if needed > self.room() {
            self.grow(needed);
        }
    }

    /// The body, without a further copy.
    #[must_use]
    pub fn finish(self) -> Bytes {
        Bytes::from(self.data).split_off(self.pad)
    }

    /// Bytes of a body that fit into the buffer as it is.
    fn room(&self) -> usize {
        self.data.capacity() - self.pad
    }

    /// Moves to a buffer of at least `needed` bytes, placed anew.
    fn grow(&mut self, needed: usize) {
        let doubled = self.room().saturating_mul(2).max(LEAST).min(self.limit);
        let trusted = if needed < EARNED { self.announced.min(EARNED) } else { self.announced };
        let wanted = if trusted >= needed { trusted } else { doubled.max(needed) };
        let slack = if self.json_len.is_some() { ALIGNMENT - 1 } else { 0 };
        let mut data: Vec<u8> = Vec::new();
        if data.try_reserve_exact(wanted.saturating_add(slack)).is_err() {
            self.announced = 0;
            data.reserve_exact(doubled.max(needed).saturating_add(slack));
        }
        let pad = self
            .json_len
            .map_or(0, |json| data.as_ptr().addr().wrapping_add(json).wrapping_neg() % ALIGNMENT);
        data.resize(pad, 0);
        data.extend_from_slice(&self.data[self.pad..]);
        (self.data, self.pad) = (data, pad);
    }
}

/// Whether a body that came in one piece can be read where it lies: whatever type the first binary
/// tensor has, it is aligned. There may be none.
pub(super) fn is_readable(body: &[u8], json_len: Option<usize>) -> bool {
    json_len
        .and_then(|json| body.get(json..))
        .is_none_or(|binary| binary.is_empty() || binary.as_ptr().addr().is_multiple_of(ELEMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_believed_announcement_never_moves_and_another_body_stays_within_twice_its_size() {
        for json_len in [None, Some(13), Some(usize::MAX)] {
            let mut told = Gather::new(1 << 20, json_len, 1 << 20);
            told.push(b"x").unwrap();
            assert!(told.data.capacity() <= EARNED + ALIGNMENT);
            told.push(&[7; EARNED + ALIGNMENT]).unwrap();
            let place = told.data.as_ptr();
            let mut untold = Gather::new(1 << 20, json_len, 0);
            while told.len() < 1 << 20 {
                let part = [7; 1000];
                let part = &part[..part.len().min((1 << 20) - told.len())];
                told.push(part).unwrap();
                untold.push(part).unwrap();
                let most = (2 * untold.len()).max(4096) + ALIGNMENT;
                assert!(untold.data.capacity() <= most);
            }
            assert_eq!(told.data.as_ptr(), place);
            let error = told.push(b"x").unwrap_err();
            assert!(matches!(error, BodyError::TooLarge { limit: 0x10_0000 }), "{error}");
            assert_eq!(told.len(), 1 << 20);
        }
    }

    #[test]
    fn addresses_that_the_system_refuses_are_not_needed() {
        let mut gather = Gather::new(usize::MAX, Some(5), usize::MAX);
        gather.push(&[7; 2 * EARNED]).unwrap();
        gather.push(b"more").unwrap();
        assert!(gather.data.capacity() <= 4 * EARNED + ALIGNMENT);
        assert_eq!(gather.finish(), [&[7; 2 * EARNED][..], b"more"].concat());
    }
}
