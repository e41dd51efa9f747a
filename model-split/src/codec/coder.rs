//! What the entropy coders make of a payload, and which of them is kept. The forms are in the
//! parent module; it must not know of values, only of levels and bytes.

use super::{
    CodecError, Coder, Coding, HEADER_LEN,
    bits::{BitReader, BitWriter},
    order0::{Table, count},
    rans,
};

/// The effort that zstd is asked for: more finds nothing in planes that order 0 does not.
const ZSTD_LEVEL: i32 = 1;
/// Levels of a unit from which its centre may be worth its bits.
const CENTRED_UNIT: usize = 8;

/// What a payload consists of before it is coded, as far as the order-0 coder must know.
#[derive(Clone, Copy)]
pub(super) enum Symbols<'a> {
    /// One level for each element, in units of that many, and what stands behind the levels.
    Levels { levels: &'a [u8], bits: u8, unit: usize, behind: &'a [u8] },
    /// Elements of that many bytes.
    Bytes { bytes: &'a [u8], size: usize },
}

/// Codes the bytes of `out` behind the header in the way that `coding` asks for.
pub(super) fn pack(out: &mut Vec<u8>, symbols: Symbols<'_>, coding: Coding) -> Coder {
    if coding == Coding::Plain {
        return Coder::None;
    }
    let plain = &out[HEADER_LEN..];
    let mut best: Option<(Coder, Vec<u8>)> = None;
    let mut offer = |coder, coded: Vec<u8>| {
        let least = best.as_ref().map_or(plain.len(), |(_, coded)| coded.len());
        if coded.len() < least {
            best = Some((coder, coded));
        }
    };
    if let Some(coded) = order0(symbols, plain.len()) {
        offer(Coder::Order0, coded);
    }
    if let Ok(coded) = zstd(plain) {
        offer(Coder::Zstd, coded);
    }
    let Some((coder, coded)) = best else { return Coder::None };
    out.truncate(HEADER_LEN);
    out.extend_from_slice(&coded);
    coder
}

pub(super) fn zstd(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    compressor.include_contentsize(false)?;
    compressor.include_checksum(false)?;
    compressor.compress(plain)
}

/// What zstd made of `len` bytes.
pub(super) fn unzstd(coded: &[u8], len: usize) -> Result<Vec<u8>, CodecError> {
    let fault = |reason| CodecError::Coded { coder: "zstd", reason };
    let mut plain = vec![0; len];
    let got = zstd::bulk::Decompressor::new()
        .and_then(|mut zstd| zstd.decompress_to_buffer(coded, &mut plain[..]))
        .map_err(|_| fault("it is damaged, or longer than its header says"))?;
    if got != len {
        return Err(fault("it is shorter than its header says"));
    }
    Ok(plain)
}

/// The payload by the order-0 coder; none when it would not be shorter than `plain` bytes.
pub(super) fn order0(symbols: Symbols<'_>, plain: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(plain);
    match symbols {
        Symbols::Levels { levels, bits, unit, behind } => {
            write_levels(levels, bits, unit, plain.checked_sub(behind.len())?, &mut out)?;
            out.extend_from_slice(behind);
        }
        Symbols::Bytes { bytes, size } => {
            for place in 0..size {
                let lane: Vec<u8> = bytes.iter().skip(place).step_by(size).copied().collect();
                write_lane(&lane, &mut out);
            }
        }
    }
    Some(out)
}

fn write_levels(
    levels: &[u8],
    bits: u8,
    unit: usize,
    plain: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    let alphabet = 1 << bits;
    let counts = count(levels);
    let table = Table::fit(&counts, alphabet);
    let cost = table.cost(&counts);
    let most = 8.0 * plain as f64;
    let (centres, centred) = centre(levels, bits, unit);
    let centred_counts = count(&centred);
    let centred_table = Table::fit(&centred_counts, alphabet);
    let centres_cost = (centres.len() * usize::from(bits)) as f64;
    let centred_cost = centred_table.cost(&centred_counts) + centres_cost;
    if unit >= CENTRED_UNIT && centred_cost < cost {
        if centred_cost >= most {
            return None;
        }
        out.push(1);
        let mut writer = BitWriter::new(out);
        centres.iter().for_each(|centre| writer.put(u32::from(*centre), u32::from(bits)));
        writer.finish();
        centred_table.write(out);
        rans::write(&centred, centred_table.frequencies(), out);
    } else {
        if cost >= most {
            return None;
        }
        out.push(0);
        table.write(out);
        rans::write(levels, table.frequencies(), out);
    }
    Some(())
}

/// The mean level of each unit, and levels less that, modulo `2^bits`.
fn centre(levels: &[u8], bits: u8, unit: usize) -> (Vec<u8>, Vec<u8>) {
    let mask = ((1u32 << bits) - 1) as u8;
    let mut centred = vec![0; levels.len()];
    let pairs = levels.chunks_exact(unit).zip(centred.chunks_exact_mut(unit));
    let centre = |(levels, centred): (&[u8], &mut [u8])| {
        let sum: u64 = levels.iter().map(|level| u64::from(*level)).sum();
        // A mean of levels is a level.
        let mean = ((sum + unit as u64 / 2) / unit as u64) as u8;
        for (centred, level) in centred.iter_mut().zip(levels) {
            *centred = level.wrapping_sub(mean) & mask;
        }
        mean
    };
    (pairs.map(centre).collect(), centred)
}

/// The levels that [`write_levels`] wrote, `count` of them, and what follows.
pub(super) fn read_levels(
    coded: &[u8],
    count: usize,
    bits: u8,
    unit: usize,
) -> Result<(Vec<u8>, &[u8]), CodecError> {
    let fault = |reason| CodecError::Coded { coder: "order-0", reason };
    let (form, mut rest) = coded.split_first().ok_or(fault("it is empty"))?;
    let mut centres = Vec::new();
    match form {
        0 => {}
        1 => {
            let mut reader = BitReader::new(rest);
            // Taken bit by bit from bytes that are there, so that the room for them is bounded.
            let mut next = || reader.take(u32::from(bits)).map(|centre| centre as u8);
            centres = (0..count / unit).map_while(|_| next()).collect();
            if centres.len() != count / unit {
                return Err(fault("its centres break off"));
            }
            rest = reader.rest().ok_or(fault("its centres are not padded with zeros"))?;
        }
        _ => return Err(fault("its form is unknown")),
    }
    let (table, rest) = Table::read(1 << bits, rest)?;
    let (mut levels, rest) = rans::read(count, table.frequencies(), rest)?;
    let mask = ((1u32 << bits) - 1) as u8;
    for (levels, centre) in levels.chunks_exact_mut(unit).zip(centres) {
        levels.iter_mut().for_each(|level| *level = level.wrapping_add(centre) & mask);
    }
    Ok((levels, rest))
}

/// One byte of each element, coded where that is shorter.
fn write_lane(lane: &[u8], out: &mut Vec<u8>) {
    let counts = count(lane);
    let table = Table::fit(&counts, 256);
    let start = out.len();
    if table.cost(&counts) < 8.0 * lane.len() as f64 {
        out.push(1);
        table.write(out);
        rans::write(lane, table.frequencies(), out);
        if out.len() - start <= lane.len() {
            return;
        }
        out.truncate(start);
    }
    out.push(0);
    out.extend_from_slice(lane);
}

/// The bytes of `count` elements of `size` bytes that [`write_lane`] wrote, and what follows.
pub(super) fn read_bytes(coded: &[u8], count: usize, size: usize) -> Result<Vec<u8>, CodecError> {
    let fault = |reason| CodecError::Coded { coder: "order-0", reason };
    let mut plain = vec![0; count * size];
    let mut rest = coded;
    for place in 0..size {
        let (form, after) = rest.split_first().ok_or(fault("it breaks off"))?;
        let lane = match form {
            0 => {
                let (lane, after) =
                    after.split_at_checked(count).ok_or(fault("its bytes break off"))?;
                rest = after;
                lane.to_vec()
            }
            1 => {
                let (table, after) = Table::read(256, after)?;
                let (lane, after) = rans::read(count, table.frequencies(), after)?;
                rest = after;
                lane
            }
            _ => return Err(fault("its form is unknown")),
        };
        for (slot, byte) in plain.iter_mut().skip(place).step_by(size).zip(lane) {
            *slot = byte;
        }
    }
    if !rest.is_empty() {
        return Err(fault("bytes follow it"));
    }
    Ok(plain)
}
