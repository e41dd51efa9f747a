//! Mutations of seeds, for the ordinary test: a fuzzer without coverage, but with a seed number, so
//! that the same number makes the same inputs. It knows no format beyond a few telling tokens.

use midspan_router_core::Rng;

/// Longest input that a mutation makes, in bytes.
const MOST: usize = 1 << 16;

/// Bytes that parsers treat apart.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x01\0\0\0",
    b"\xff\xff\xff\x7f",
    b"-0",
    b"1e308",
    b"1e-320",
    b"18446744073709551615",
    b"9223372036854775808",
    b"NaN",
    b"-Infinity",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b",",
    b";",
    b"=",
    b"%2F",
    b"%00",
    b"..",
    b"\"FP64\"",
    b"\"BYTES\"",
    b"\"BOOL\"",
    b"\"UINT64\"",
    b"\xc3\xa9",
    b"\n",
    b"0.1",
    b"[[",
    b"]]",
    b"\"0s\"",
    b"\"99999999999d\"",
    b"1.7976931348623157e308",
    b"4.9e-324",
];

/// Random bytes, fewer than `most`.
#[must_use]
pub fn noise(rng: &mut Rng, most: u32) -> Vec<u8> {
    (0..rng.below(most)).map(|_| rng.next_u64() as u8).collect()
}

/// A changed copy of one of `seeds`: changes of bits, bytes, tokens and pieces of other seeds. Half
/// of the copies have one change, as most messages stand no more; the others have up to eight.
#[must_use]
pub fn mutate(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut data = pick(seeds, rng).map_or_else(Vec::new, Clone::clone);
    let changes = if rng.below(2) == 0 { 1 } else { 1 + rng.below(8) };
    for _ in 0..changes {
        change(&mut data, seeds, rng);
        data.truncate(MOST);
    }
    data
}

fn pick<'a, T>(all: &'a [T], rng: &mut Rng) -> Option<&'a T> {
    let count = u32::try_from(all.len()).ok().filter(|count| *count > 0)?;
    all.get(rng.below(count) as usize)
}

/// A place in `data`, its end included.
fn place(data: &[u8], rng: &mut Rng) -> usize {
    rng.below(data.len() as u32 + 1) as usize
}

fn span(data: &[u8], rng: &mut Rng) -> std::ops::Range<usize> {
    let start = place(data, rng);
    let length = rng.below(32) as usize;
    start..(start + length).min(data.len())
}

fn change(data: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let at = place(data, rng);
    match rng.below(8) {
        0 => data.truncate(at),
        1 => {
            data.drain(span(data, rng));
        }
        2 => {
            let token = pick(TOKENS, rng).copied().unwrap_or_default();
            data.splice(at..at, token.iter().copied());
        }
        3 => {
            let token = pick(TOKENS, rng).copied().unwrap_or_default();
            let end = (at + token.len()).min(data.len());
            data.splice(at..end, token.iter().copied());
        }
        4 => {
            let other = pick(seeds, rng).map(Vec::as_slice).unwrap_or_default();
            let piece = other[span(other, rng)].to_vec();
            data.splice(at..at, piece);
        }
        5 => {
            let piece = data[span(data, rng)].to_vec();
            data.splice(at..at, piece);
        }
        6 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        _ => {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
    }
}
