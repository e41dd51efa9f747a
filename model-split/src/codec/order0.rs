//! The order-0 coder's tables: how often each symbol is expected, fitted to counts and written
//! into the payload. What is done with a table is in `rans`.
//!
//! A table is, as bits from the least significant of each byte on, padded with zeros to a byte:
//! the symbol that takes what the others leave of 4096 (8 bits), then, for every other symbol of
//! the alphabet in order, the number of binary digits of its frequency, 0 to 13, against that of
//! the symbol before it (0 before the first): bit `0` the same, `1 0` one less, `1 1 0` one more,
//! `1 1 1` and four bits the number itself; then, of a frequency of two digits or more, the up to
//! three digits after the first, as a number. Digits after those are zero. Bits of a number come
//! least significant first.

use super::{
    CodecError,
    bits::{BitReader, BitWriter},
    rans::{Frequencies, SCALE, SCALE_BITS},
};

/// Digits kept after the first of a frequency: within 3 % of what was counted.
const KEPT: u32 = 3;

fn fault(reason: &'static str) -> CodecError {
    CodecError::Coded { coder: "order-0", reason }
}

/// How often each symbol came.
pub(super) type Counts = [u32; 256];

/// Counts symbols.
pub(super) fn count(symbols: &[u8]) -> Counts {
    // Four counters, because a processor waits when it adds to one that it has just written.
    let mut parts = [[0u32; 256]; 4];
    let (groups, rest) = symbols.as_chunks::<4>();
    for group in groups {
        for (part, symbol) in parts.iter_mut().zip(group) {
            part[usize::from(*symbol)] += 1;
        }
    }
    for symbol in rest {
        parts[0][usize::from(*symbol)] += 1;
    }
    std::array::from_fn(|symbol| parts.iter().map(|part| part[symbol]).sum())
}

/// Expected frequencies of the symbols of an alphabet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Symbols of the alphabet, 2 to 256.
    alphabet: usize,
    /// The symbol that takes what the others leave.
    rest: u8,
    frequencies: Frequencies,
}

/// Keeps the first digits of a frequency, to the nearest.
fn coarse(frequency: u32) -> u32 {
    let dropped = (u32::BITS - frequency.leading_zeros()).saturating_sub(KEPT + 1);
    let half = (1 << dropped) >> 1;
    ((frequency + half) >> dropped) << dropped
}

impl Table {
    /// The table for what was counted: every symbol that came has a frequency. At least one must
    /// have come.
    pub(super) fn fit(counts: &Counts, alphabet: usize) -> Self {
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let most = counts.iter().enumerate().rev().max_by_key(|(_, count)| **count);
        let rest = most.map_or(0, |(symbol, _)| symbol);
        let mut scale = u64::from(SCALE);
        loop {
            let mut frequencies = [0; 256];
            let mut left = SCALE;
            for (symbol, count) in counts.iter().enumerate() {
                if *count > 0 && symbol != rest {
                    let share = (u64::from(*count) * scale + total / 2) / total.max(1);
                    // At most 4096, as shares are; `left` is for the caller to judge.
                    let frequency = coarse((share as u32).max(1));
                    frequencies[symbol] = frequency as u16;
                    left = left.saturating_sub(frequency);
                }
            }
            // Rounding up may leave nothing. With `scale` at 0 each of 255 symbols gets 1.
            if left > 0 {
                frequencies[rest] = left as u16;
                return Self { alphabet, rest: rest as u8, frequencies };
            }
            scale = scale * 7 / 8;
        }
    }

    /// The frequencies.
    pub(super) fn frequencies(&self) -> &Frequencies {
        &self.frequencies
    }

    /// Bits that symbols so counted take, without the table.
    pub(super) fn cost(&self, counts: &Counts) -> f64 {
        let cost = |(count, frequency): (&u32, &u16)| {
            f64::from(*count) * (f64::from(SCALE_BITS) - f64::from(*frequency).log2())
        };
        let both = counts.iter().zip(&self.frequencies);
        both.filter(|(count, _)| **count > 0).map(cost).sum()
    }

    /// Appends the table.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut bits = BitWriter::new(out);
        bits.put(u32::from(self.rest), 8);
        let mut before = 0;
        for (symbol, frequency) in self.frequencies[..self.alphabet].iter().enumerate() {
            if symbol == usize::from(self.rest) {
                continue;
            }
            let frequency = u32::from(*frequency);
            let digits = u32::BITS - frequency.leading_zeros();
            match digits as i32 - before {
                0 => bits.put(0, 1),
                -1 => bits.put(0b01, 2),
                1 => bits.put(0b011, 3),
                _ => bits.put(0b111 | digits << 3, 7),
            }
            before = digits as i32;
            let kept = digits.saturating_sub(1).min(KEPT);
            let after = frequency.wrapping_sub(1 << digits >> 1);
            bits.put(after >> (digits.saturating_sub(1) - kept), kept);
        }
        bits.finish();
    }

    /// Reads a table from the front of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// When the bytes break off, or are no table.
    pub(super) fn read(alphabet: usize, bytes: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let short = || fault("its table breaks off");
        let many = || fault("its table adds up to more than 4096");
        let mut bits = BitReader::new(bytes);
        let rest = bits.take(8).ok_or_else(short)? as u8;
        if usize::from(rest) >= alphabet {
            return Err(fault("its table names a symbol that there is not"));
        }
        let mut frequencies = [0; 256];
        let (mut before, mut left) = (0u32, SCALE);
        for symbol in (0..alphabet).filter(|symbol| *symbol != usize::from(rest)) {
            let digits = Self::digits(&mut bits, before).ok_or_else(short)?;
            if digits > SCALE_BITS + 1 {
                return Err(fault("its table has a frequency of too many digits"));
            }
            before = digits;
            if digits == 0 {
                continue;
            }
            let kept = (digits - 1).min(KEPT);
            let after = bits.take(kept).ok_or_else(short)?;
            let frequency = (1 << kept | after) << (digits - 1 - kept);
            left = left.checked_sub(frequency).filter(|left| *left > 0).ok_or_else(many)?;
            frequencies[symbol] = frequency as u16;
        }
        frequencies[usize::from(rest)] = left as u16;
        let after = bits.rest().ok_or_else(|| fault("its table is not padded with zeros"))?;
        Ok((Self { alphabet, rest, frequencies }, after))
    }

    /// The number of digits of the next frequency; 14 and above are no such number.
    fn digits(bits: &mut BitReader<'_>, before: u32) -> Option<u32> {
        if bits.take(1)? == 0 {
            return Some(before);
        }
        if bits.take(1)? == 0 {
            return Some(before.wrapping_sub(1));
        }
        if bits.take(1)? == 0 {
            return Some(before + 1);
        }
        bits.take(4)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(counts: &Counts, alphabet: usize) {
        let table = Table::fit(counts, alphabet);
        let sum: u32 = table.frequencies.iter().map(|frequency| u32::from(*frequency)).sum();
        assert_eq!(sum, SCALE);
        let both = counts.iter().zip(&table.frequencies);
        assert!(both.clone().all(|(count, frequency)| *count == 0 || *frequency > 0));
        let mut bytes = Vec::new();
        table.write(&mut bytes);
        bytes.push(0xff);
        assert_eq!(Table::read(alphabet, &bytes).unwrap(), (table, &[0xff][..]));
        assert!((0..bytes.len() - 1).all(|len| Table::read(alphabet, &bytes[..len]).is_err()));
    }

    #[test]
    fn every_symbol_that_came_has_a_frequency() {
        check(&[1; 256], 256);
        check(&[u32::MAX; 256], 256);
        let mut one = [0; 256];
        one[255] = 1;
        check(&one, 256);
        // Very many of one symbol, and one of each other: rounding up leaves it little.
        let mut most = [1; 256];
        most[0] = u32::MAX;
        check(&most, 256);
        let mut pair = [0; 256];
        (pair[0], pair[1]) = (7, 7);
        check(&pair, 2);
    }

    /// What is paid for rounding frequencies is a small part of what the symbols take.
    #[test]
    fn a_table_costs_little_more_than_what_was_counted() {
        let counts: Counts = std::array::from_fn(|at| 30_000u32 >> (at.abs_diff(40) / 2).min(31));
        let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        let came = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count));
        let entropy: f64 = came.map(|count| count * (total / count).log2()).sum();
        let cost = Table::fit(&counts, 256).cost(&counts);
        assert!((entropy..entropy * 1.005).contains(&cost), "{cost} bits for {entropy}");
    }

    proptest! {
        #[test]
        fn tables_come_back(
            counts in proptest::collection::vec(prop_oneof![Just(0u32), 0u32..9, 0u32..70_000], 256),
            bits in 1usize..=8,
        ) {
            let mut counts: Counts = counts.try_into().unwrap();
            counts[1 << bits..].fill(0);
            counts[0] += 1;
            check(&counts, 1 << bits);
        }
    }
}
