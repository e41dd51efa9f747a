//! The payload of affine frames: quantising, Gray-coded bit planes, and raw rows behind them. The
//! formulas are in the parent module. It trusts the lengths that the header check has established.

use super::{CodecError, FrameHeader, Scale};

/// Appends the planes of all rows, then the rows that travel raw; returns how many those are.
pub(super) fn write(
    values: &[f32],
    elements: usize,
    scale: Scale,
    bits: u8,
    out: &mut Vec<u8>,
) -> u32 {
    let plane = elements.div_ceil(8);
    let (step, top) = (scale.step(bits), (1u32 << bits) - 1);
    let mut raw = Vec::new();
    for (index, row) in values.chunks_exact(elements).enumerate() {
        let start = out.len();
        out.resize(start + plane * usize::from(bits), 0);
        if !row.iter().all(|value| value.is_finite()) {
            raw.push((index, row));
            continue;
        }
        let planes = &mut out[start..];
        for (byte, eight) in row.chunks(8).enumerate() {
            let mut gray = [0u8; 8];
            for (slot, value) in gray.iter_mut().zip(eight) {
                let level = (value.clamp(scale.lo(), scale.hi()) - scale.lo()) / step;
                // At most `top`, which is at most 255; rounding of the division can exceed it.
                let level = (level.round_ties_even() as u32).min(top) as u8;
                *slot = level ^ (level >> 1);
            }
            let gray = transpose(u64::from_le_bytes(gray)).to_le_bytes();
            for order in 0..bits {
                planes[usize::from(order) * plane + byte] = gray[usize::from(bits - 1 - order)];
            }
        }
    }
    for (index, row) in &raw {
        out.extend_from_slice(&(*index as u32).to_le_bytes());
        out.extend(row.iter().flat_map(|value| value.to_le_bytes()));
    }
    raw.len() as u32
}

/// The values of all rows.
pub(super) fn read(
    header: &FrameHeader,
    payload: &[u8],
    scale: Scale,
) -> Result<Vec<f32>, CodecError> {
    let (elements, rows, bits) =
        (header.elements as usize, header.rows as usize, usize::from(header.bits));
    let plane = elements.div_ceil(8);
    let step = scale.step(header.bits);
    let (planes, raw) = payload.split_at(rows * plane * bits);
    let levels: Vec<f32> = (0..1u16 << bits).map(|q| scale.lo() + f32::from(q) * step).collect();
    let mut values = vec![0.0; rows * elements];
    for (row, planes) in values.chunks_exact_mut(elements).zip(planes.chunks_exact(plane * bits)) {
        for (byte, eight) in row.chunks_mut(8).enumerate() {
            let mut gray = [0u8; 8];
            for order in 0..bits {
                gray[bits - 1 - order] = planes[order * plane + byte];
            }
            let gray = transpose(u64::from_le_bytes(gray)).to_le_bytes();
            for (value, gray) in eight.iter_mut().zip(gray) {
                *value = levels[usize::from(from_gray(gray))];
            }
        }
    }
    read_raw(raw, elements, &mut values)?;
    Ok(values)
}

fn read_raw(raw: &[u8], elements: usize, values: &mut [f32]) -> Result<(), CodecError> {
    let mut earlier = None;
    for entry in raw.chunks_exact(4 + 4 * elements) {
        let (words, _) = entry.as_chunks::<4>();
        let Some((index, row)) = words.split_first() else { continue };
        let index = u32::from_le_bytes(*index) as usize;
        let slot = values.chunks_exact_mut(elements).nth(index);
        let Some(slot) = slot.filter(|_| earlier.is_none_or(|earlier| earlier < index)) else {
            return Err(CodecError::Header("raw rows are out of order or out of range"));
        };
        for (value, word) in slot.iter_mut().zip(row) {
            *value = f32::from_le_bytes(*word);
        }
        earlier = Some(index);
    }
    Ok(())
}

fn from_gray(gray: u8) -> u8 {
    let gray = gray ^ (gray >> 4);
    let gray = gray ^ (gray >> 2);
    gray ^ (gray >> 1)
}

/// Transposes an 8x8 matrix of bits: bit `c` of byte `r` becomes bit `r` of byte `c`.
fn transpose(x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    let x = x ^ t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    let x = x ^ t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}
