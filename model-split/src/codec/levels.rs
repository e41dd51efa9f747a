//! Values to levels and back, unit by unit, and the units that travel raw. The formulas are in the
//! parent module. It trusts lengths that the header check has established, and nothing else.

use super::{CodecError, Scale};

/// Adding it leaves a number below `2^22` rounded, half to even, in the lowest bits.
const ROUNDING: f32 = 8_388_608.0;

/// Where the scales of a frame come from.
#[derive(Clone, Copy)]
pub(super) enum Scales<'a> {
    /// From the cut: one, or one for each unit of a row.
    Static(&'a [Scale]),
    /// From the values of each unit; they travel.
    Own,
}

/// Rows as levels.
pub(super) struct Levels {
    /// One for each element, zero in units that travel raw.
    pub(super) levels: Vec<u8>,
    /// Bytes of the scales that travel, and of the units that travel raw.
    pub(super) behind: Vec<u8>,
    /// Units that travel raw.
    pub(super) raw_units: u32,
}

/// Quantises values that consist of units of `unit` elements, `units` to a row.
pub(super) fn quantise(
    values: &[f32],
    unit: usize,
    units: usize,
    scales: Scales<'_>,
    bits: u8,
) -> Levels {
    let mut levels = vec![0; values.len()];
    let (mut own, mut raw, mut raw_units) = (Vec::new(), Vec::new(), 0);
    let pairs = values.chunks_exact(unit).zip(levels.chunks_exact_mut(unit));
    for (index, (values, levels)) in pairs.enumerate() {
        let finite = all_finite(values);
        let scale = match scales {
            Scales::Static(scales) => {
                let at = if scales.len() == 1 { 0 } else { index % units };
                scales.get(at).copied().filter(|_| finite)
            }
            Scales::Own => own_scale(values).filter(|_| finite),
        };
        if let Scales::Own = scales {
            let Scale { lo, hi } = scale.unwrap_or(Scale { lo: 0.0, hi: 0.0 });
            own.extend_from_slice(&lo.to_le_bytes());
            own.extend_from_slice(&hi.to_le_bytes());
        }
        match scale {
            Some(scale) => quantise_unit(values, scale, bits, levels),
            None => {
                // Rows and units of a row are counted in 32 bits together, as the header is.
                raw.extend_from_slice(&(index as u32).to_le_bytes());
                raw.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                raw_units += 1;
            }
        }
    }
    own.append(&mut raw);
    Levels { levels, behind: own, raw_units }
}

/// Whether no value is a NaN or infinite.
fn all_finite(values: &[f32]) -> bool {
    // Without the sign such a value is at least infinity, as an integer too.
    let most = values.iter().fold(0, |most, value| most.max((value.to_bits() << 1 >> 1) as i32));
    most < f32::INFINITY.to_bits() as i32
}

/// The range of finite values; none when it has no sound step.
fn own_scale(values: &[f32]) -> Option<Scale> {
    let least = |a: f32, b: &f32| if *b < a { *b } else { a };
    let most = |a: f32, b: &f32| if *b > a { *b } else { a };
    let lo = values.iter().fold(f32::INFINITY, least);
    let hi = values.iter().fold(f32::NEG_INFINITY, most);
    Scale::own(lo, hi)
}

fn quantise_unit(values: &[f32], scale: Scale, bits: u8, levels: &mut [u8]) {
    let (lo, hi, step) = (scale.lo, scale.hi, scale.step(bits));
    if step == 0.0 {
        return; // One value, which is level 0.
    }
    let top = ((1u32 << bits) - 1) as u8;
    for (level, value) in levels.iter_mut().zip(values) {
        let scaled = (value.max(lo).min(hi) - lo) / step;
        // Rounding of the division can exceed `top`, never by a half.
        *level = ((scaled + ROUNDING).to_bits() as u8).min(top);
    }
}

/// The values of levels, for units of `unit` elements, as little-endian bytes.
pub(super) fn restore(
    levels: &[u8],
    unit: usize,
    bits: u8,
    scale: impl Fn(usize) -> Option<Scale>,
) -> Result<Vec<u8>, CodecError> {
    let mut out = vec![0; 4 * levels.len()];
    let pairs = levels.chunks_exact(unit).zip(out.chunks_exact_mut(4 * unit));
    for (index, (levels, out)) in pairs.enumerate() {
        let fault = CodecError::Header("a scale is no finite range, low to high");
        let scale = scale(index).ok_or(fault)?;
        let (lo, step) = (scale.lo, scale.step(bits));
        let (out, _) = out.as_chunks_mut::<4>();
        for (out, level) in out.iter_mut().zip(levels) {
            *out = (lo + f32::from(*level) * step).to_le_bytes();
        }
    }
    Ok(out)
}

/// The scales that travelled, by unit; none for one that is not sound.
pub(super) fn own_scales(own: &[u8]) -> impl Fn(usize) -> Option<Scale> {
    let (words, _) = own.as_chunks::<4>();
    move |index| {
        let word = |at: usize| words.get(at).map(|word| f32::from_le_bytes(*word));
        Scale::own(word(2 * index)?, word(2 * index + 1)?)
    }
}

/// Puts the units that travelled raw in their places.
pub(super) fn restore_raw(raw: &[u8], unit: usize, out: &mut [u8]) -> Result<(), CodecError> {
    let mut earlier = None;
    for entry in raw.chunks_exact(4 + 4 * unit) {
        let Some((index, values)) = entry.split_first_chunk::<4>() else { continue };
        let index = u32::from_le_bytes(*index) as usize;
        let slot = out.chunks_exact_mut(4 * unit).nth(index);
        let Some(slot) = slot.filter(|_| earlier.is_none_or(|earlier| earlier < index)) else {
            return Err(CodecError::Header("raw units are out of order or out of range"));
        };
        slot.copy_from_slice(values);
        earlier = Some(index);
    }
    Ok(())
}
