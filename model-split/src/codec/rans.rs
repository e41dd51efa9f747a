//! Range asymmetric numeral systems with one static table: symbols to 16-bit words and back. It
//! knows nothing of what symbols mean, nor of how a table is written.
//!
//! A state `x` is in `2^15 .. 2^31`. Reading a symbol: `slot = x mod 4096` lies in the interval
//! `start .. start + frequency` of exactly one symbol, which is the one read;
//! `x = frequency * (x / 4096) + slot - start`; and when `x < 2^15`, `x = x * 65536 + next word`.
//! Symbol `i` belongs to state `i mod lanes`; all states share one sequence of words. Writing is
//! the same backwards, from `x = 2^15` in every state, so that a reader that ends with another
//! state, or with words left over, has read something else than was written.

use super::CodecError;

/// Frequencies add up to this power of two.
pub(super) const SCALE_BITS: u32 = 12;
/// What frequencies add up to.
pub(super) const SCALE: u32 = 1 << SCALE_BITS;
/// Least value of a state.
const LOW: u32 = 1 << 15;
/// Symbols from which four states are worth their bytes.
const MANY: usize = 4096;
/// States of a long sequence, which a processor advances side by side.
const LANES: usize = 4;

/// How often each symbol is expected, of [`SCALE`]; the sum is [`SCALE`].
pub(super) type Frequencies = [u16; 256];

fn fault(reason: &'static str) -> CodecError {
    CodecError::Coded { coder: "order-0", reason }
}

/// What one symbol does to a state while writing.
#[derive(Clone, Copy, Default)]
struct Step {
    /// From this state on a word leaves first.
    limit: u32,
    /// `ceil(2^(31 + shift) / frequency)`, by which a state below `2^31` is divided exactly.
    reciprocal: u32,
    shift: u32,
    frequency: u32,
    start: u32,
}

impl Step {
    fn of(frequency: u32, start: u32) -> Self {
        // The smallest power of two that is no less than the frequency.
        let shift = frequency.next_power_of_two().trailing_zeros();
        // Below 2^32: a frequency is more than half of that power of two, and at most 4096.
        let reciprocal = (1u64 << (31 + shift)).div_ceil(u64::from(frequency)) as u32;
        let limit = ((LOW >> SCALE_BITS) << 16) * frequency;
        Self { limit, reciprocal, shift, frequency, start }
    }

    fn divide(&self, state: u32) -> u32 {
        ((u64::from(state) * u64::from(self.reciprocal)) >> (31 + self.shift)) as u32
    }

    fn advance(&self, state: u32) -> u32 {
        let quotient = self.divide(state);
        (quotient << SCALE_BITS) + (state - quotient * self.frequency) + self.start
    }
}

/// Appends the states, four bytes each, the number of words as LEB128, and the words. All symbols
/// must have a frequency.
pub(super) fn write(symbols: &[u8], frequencies: &Frequencies, out: &mut Vec<u8>) {
    if symbols.len() < MANY {
        write_lanes::<1>(symbols, frequencies, out);
    } else {
        write_lanes::<LANES>(symbols, frequencies, out);
    }
}

fn write_lanes<const N: usize>(symbols: &[u8], frequencies: &Frequencies, out: &mut Vec<u8>) {
    let mut steps = [Step::default(); 256];
    let mut start = 0;
    for (step, frequency) in steps.iter_mut().zip(frequencies).filter(|(_, count)| **count > 0) {
        *step = Step::of(u32::from(*frequency), start);
        start += u32::from(*frequency);
    }
    let mut states = [LOW; N];
    // At most one word leaves for a symbol; they are filled from the end, as a reader meets them.
    let mut words = vec![0u16; symbols.len() + 1];
    let mut at = symbols.len();
    let mut put = |state: &mut u32, symbol: u8| {
        let step = &steps[usize::from(symbol)];
        words[at] = *state as u16;
        let full = *state >= step.limit;
        at -= usize::from(full);
        *state = step.advance(if full { *state >> 16 } else { *state });
    };
    let (groups, rest) = symbols.as_chunks::<N>();
    for (lane, symbol) in rest.iter().enumerate().rev() {
        put(&mut states[lane], *symbol);
    }
    for group in groups.iter().rev() {
        for lane in (0..N).rev() {
            put(&mut states[lane], group[lane]);
        }
    }
    // A word that did not leave still lies at `at`.
    let words = &words[at + 1..];
    out.extend(states.iter().flat_map(|state| state.to_le_bytes()));
    write_length(words.len(), out);
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Reads `count` symbols, for which the caller has found room, from the front of `bytes`; returns
/// them and what follows.
pub(super) fn read<'a>(
    count: usize,
    frequencies: &Frequencies,
    bytes: &'a [u8],
) -> Result<(Vec<u8>, &'a [u8]), CodecError> {
    if count < MANY {
        read_lanes::<1>(count, frequencies, bytes)
    } else {
        read_lanes::<LANES>(count, frequencies, bytes)
    }
}

/// For each slot its symbol (bits 0 to 7), its place in the symbol's interval (8 to 19) and the
/// symbol's frequency less 1 (20 to 31).
fn slots(frequencies: &Frequencies) -> Box<[u32; SCALE as usize]> {
    let mut slots = Box::new([0; SCALE as usize]);
    let mut start = 0;
    for (symbol, frequency) in frequencies.iter().enumerate().filter(|(_, count)| **count > 0) {
        let end = start + usize::from(*frequency);
        let packed = symbol as u32 | (u32::from(*frequency) - 1) << 20;
        for (place, slot) in slots[start..end].iter_mut().enumerate() {
            *slot = packed | (place as u32) << 8;
        }
        start = end;
    }
    slots
}

fn read_lanes<'a, const N: usize>(
    count: usize,
    frequencies: &Frequencies,
    bytes: &'a [u8],
) -> Result<(Vec<u8>, &'a [u8]), CodecError> {
    let short = || fault("its words break off");
    let mut states = [0u32; N];
    let mut rest = bytes;
    for state in &mut states {
        let (bytes, after) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        (*state, rest) = (u32::from_le_bytes(*bytes), after);
        if !(LOW..LOW << 16).contains(state) {
            return Err(fault("a state is out of range"));
        }
    }
    let (length, rest) = read_length(rest)?;
    let length = length.checked_mul(2).ok_or_else(short)?;
    let (words, rest) = rest.split_at_checked(length).ok_or_else(short)?;
    let (words, _) = words.as_chunks::<2>();
    let slots = slots(frequencies);
    let mut symbols = vec![0; count];
    let mut at = 0;
    // The symbol, and the state before a word is added to it.
    let step = |state: u32| {
        let slot = slots[(state % SCALE) as usize];
        let state = ((slot >> 20) + 1) * (state >> SCALE_BITS) + (slot >> 8) % SCALE;
        (slot as u8, state)
    };
    let (groups, tail) = symbols.as_chunks_mut::<N>();
    let mut groups = groups.iter_mut();
    // While there are words for all lanes of a group, none has to be checked for.
    while let Some(next) = words.get(at..).and_then(<[_]>::first_chunk::<N>) {
        let Some(group) = groups.next() else { break };
        let mut taken = 0;
        for lane in 0..N {
            let (symbol, state) = step(states[lane]);
            group[lane] = symbol;
            let longer = state << 16 | u32::from(u16::from_le_bytes(next[taken % N]));
            let low = state < LOW;
            states[lane] = if low { longer } else { state };
            taken += usize::from(low);
        }
        at += taken;
    }
    for (index, symbol) in groups.flatten().chain(tail).enumerate() {
        let state = &mut states[index % N];
        (*symbol, *state) = step(*state);
        if *state < LOW {
            let word = words.get(at).ok_or_else(short)?;
            *state = *state << 16 | u32::from(u16::from_le_bytes(*word));
            at += 1;
        }
    }
    if at != words.len() || states != [LOW; N] {
        return Err(fault("its words do not end where its symbols do"));
    }
    Ok((symbols, rest))
}

fn write_length(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_length(bytes: &[u8]) -> Result<(usize, &[u8]), CodecError> {
    let mut value = 0;
    // Five groups of seven bits hold more than any payload's length.
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let value = usize::try_from(value).map_err(|_| fault("a length is out of range"))?;
            return Ok((value, &bytes[index + 1..]));
        }
    }
    Err(fault("a length has no end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_divide_exactly() {
        let mut state = 12_345u32;
        for frequency in 1..=SCALE {
            let step = Step::of(frequency, 0);
            let edges = [LOW, LOW + 1, (1 << 31) - 1, frequency, frequency * 3 - 1, frequency * 3];
            let some = (0..50).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 1
            });
            for value in edges.into_iter().chain(some) {
                assert_eq!(step.divide(value), value / frequency, "{value} / {frequency}");
            }
        }
    }

    #[test]
    fn lengths_have_one_to_five_bytes() {
        for value in [0, 1, 127, 128, 300, u32::MAX as usize] {
            let mut bytes = Vec::new();
            write_length(value, &mut bytes);
            bytes.push(7);
            assert_eq!(read_length(&bytes).unwrap(), (value, &[7][..]));
        }
        assert!(read_length(&[0x80; 5]).is_err());
        assert!(read_length(&[]).is_err());
    }

    /// One symbol costs nothing, whatever its number; a rare one costs its words.
    #[test]
    fn symbols_come_back_whatever_their_number() {
        let mut frequencies = [0; 256];
        (frequencies[3], frequencies[200]) = (4095, 1);
        for count in [1, 2, 5, 4095, 4096, 4097, 4099, 9_000] {
            for rare in [0, 1, 7] {
                let symbols: Vec<u8> =
                    (0..count).map(|at| if at % 11 < rare { 200 } else { 3 }).collect();
                let mut bytes = Vec::new();
                write(&symbols, &frequencies, &mut bytes);
                bytes.extend_from_slice(b"after");
                let (back, rest) = read(count, &frequencies, &bytes).unwrap();
                assert_eq!((back, rest), (symbols, &b"after"[..]), "{count} {rare}");
                assert!(read(count + 1, &frequencies, &bytes).is_err() || rare == 0);
                bytes.truncate(bytes.len() - 6);
                assert!(read(count, &frequencies, &bytes).is_err());
            }
        }
        let mut certain = [0; 256];
        certain[9] = SCALE as u16;
        let mut bytes = Vec::new();
        write(&[9; 100_000], &certain, &mut bytes);
        assert_eq!(bytes.len(), 4 * LANES + 1);
        assert_eq!(read(100_000, &certain, &bytes).unwrap().0, [9; 100_000]);
    }
}
