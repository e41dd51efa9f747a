//! Levels as Gray-coded bit planes and back: what the payload of quantised frames starts with when
//! no order-0 coder wrote it. The form is in the parent module.

/// Appends the planes of rows of levels, each below `2^bits`.
pub(super) fn write(levels: &[u8], elements: usize, bits: u8, out: &mut Vec<u8>) {
    let plane = elements.div_ceil(8);
    let bits = usize::from(bits);
    for row in levels.chunks_exact(elements) {
        let start = out.len();
        out.resize(start + plane * bits, 0);
        let planes = &mut out[start..];
        let mut put = |byte: usize, eight: [u8; 8]| {
            let level = u64::from_le_bytes(eight);
            let gray = level ^ (level >> 1 & 0x7f7f_7f7f_7f7f_7f7f);
            let gray = transpose(gray).to_le_bytes();
            for order in 0..bits {
                planes[order * plane + byte] = gray[bits - 1 - order];
            }
        };
        let (eights, rest) = row.as_chunks::<8>();
        for (byte, eight) in eights.iter().enumerate() {
            put(byte, *eight);
        }
        if !rest.is_empty() {
            let mut eight = [0; 8];
            eight[..rest.len()].copy_from_slice(rest);
            put(eights.len(), eight);
        }
    }
}

/// The levels of all rows. `planes` is as long as [`write`] makes it.
pub(super) fn read(planes: &[u8], elements: usize, bits: u8) -> Vec<u8> {
    let plane = elements.div_ceil(8);
    let bits = usize::from(bits);
    let rows = planes.len() / (plane * bits);
    let mut levels = vec![0; rows * elements];
    for (row, planes) in levels.chunks_exact_mut(elements).zip(planes.chunks_exact(plane * bits)) {
        let take = |byte: usize| {
            let mut gray = [0u8; 8];
            for order in 0..bits {
                gray[bits - 1 - order] = planes[order * plane + byte];
            }
            from_gray(transpose(u64::from_le_bytes(gray))).to_le_bytes()
        };
        let (eights, rest) = row.as_chunks_mut::<8>();
        let whole = eights.len();
        for (byte, eight) in eights.iter_mut().enumerate() {
            *eight = take(byte);
        }
        if !rest.is_empty() {
            let len = rest.len();
            rest.copy_from_slice(&take(whole)[..len]);
        }
    }
    levels
}

/// Undoes the Gray code in each byte.
fn from_gray(gray: u64) -> u64 {
    let gray = gray ^ (gray >> 4 & 0x0f0f_0f0f_0f0f_0f0f);
    let gray = gray ^ (gray >> 2 & 0x3f3f_3f3f_3f3f_3f3f);
    gray ^ (gray >> 1 & 0x7f7f_7f7f_7f7f_7f7f)
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
