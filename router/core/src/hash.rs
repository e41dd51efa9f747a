//! The hash of affinity keys and the rendezvous score. Decides which node a
//! key prefers, so its bytes are pinned by tests: a change moves every warm
//! cache of a fleet. Not for anything adversarial or cryptographic.

/// A hashed affinity key: requests with the same key prefer the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AffinityKey(pub u64);

/// FNV-1a (64 bit) over length-prefixed fields, then an avalanche step.
///
/// FNV alone leaves near-equal keys near each other on a ring; the finaliser
/// spreads them. The length prefix (8 bytes, little endian) keeps `ab`,`c`
/// apart from `a`,`bc`.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher(u64);

impl Default for KeyHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyHasher {
    /// The empty key.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// The key with one more field.
    #[must_use]
    pub const fn field(self, bytes: &[u8]) -> Self {
        self.raw(&(bytes.len() as u64).to_le_bytes()).raw(bytes)
    }

    /// The finished key.
    pub const fn finish(self) -> AffinityKey {
        AffinityKey(mix(self.0))
    }

    const fn raw(self, bytes: &[u8]) -> Self {
        let mut state = self.0;
        let mut i = 0;
        while i < bytes.len() {
            state = (state ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            i += 1;
        }
        Self(state)
    }
}

/// The hash of one byte string: `KeyHasher::new().field(bytes).finish()`.
/// Use it for node names ([`crate::NodeKey`]) and session headers.
pub const fn hash_bytes(bytes: &[u8]) -> u64 {
    KeyHasher::new().field(bytes).finish().0
}

/// Bijective 64-bit avalanche (the xor-shift-multiply finaliser of splitmix64).
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Rendezvous score of a node for a key: the highest score is preferred.
pub(crate) const fn rendezvous(key: AffinityKey, node: u64) -> u64 {
    mix(key.0 ^ mix(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pinned() {
        assert_eq!(KeyHasher::new().raw(b"foobar").0, 0x8594_4171_f739_67e8, "FNV-1a test vector");
        expect_test::expect![[r#"
            0x813f0174a2367c13
            0x9a73311ca85ea205
            0x3ec2d42f3a45cc6e
        "#]]
        .assert_eq(&std::format!(
            "{:#x}\n{:#x}\n{:#x}\n",
            hash_bytes(b""),
            hash_bytes(b"edge-a"),
            rendezvous(AffinityKey(1), 2)
        ));
    }

    #[test]
    fn field_borders_matter() {
        let key = |a: &[u8], b: &[u8]| KeyHasher::new().field(a).field(b).finish();
        assert_ne!(key(b"ab", b"c"), key(b"a", b"bc"));
        assert_ne!(key(b"", b"x"), key(b"x", b""));
    }
}
