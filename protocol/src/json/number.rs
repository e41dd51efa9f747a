//! JSON numbers: scanned once, converted exactly. Integers are never rounded, floats are rounded
//! once, to the nearest value of their own width.

/// A number as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Number<'a> {
    text: &'a str,
    negative: bool,
    /// All digits as one integer; only right when `exact`.
    digits: u64,
    /// Power of ten that `digits` is to be multiplied by.
    exponent: i64,
    /// Whether `digits` holds them all.
    exact: bool,
}

/// Why a number is no integer of the wanted type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoInteger {
    /// It has a fraction.
    Fraction,
    /// It is beyond 64 bits and a sign.
    TooLarge,
}

/// Decimal digits that always fit in a u64.
const MAX_DIGITS: usize = 19;

/// Powers of ten as doubles; exact up to 10^22, from there on the nearest.
const POWERS: [f64; 32] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
];
/// Their inverses, each the nearest: a product is quicker than a quotient.
const INVERSES: [f64; 32] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14,
    1e-15, 1e-16, 1e-17, 1e-18, 1e-19, 1e-20, 1e-21, 1e-22, 1e-23, 1e-24, 1e-25, 1e-26, 1e-27,
    1e-28, 1e-29, 1e-30, 1e-31,
];
/// The largest exact power in the table.
const EXACT_POWER: usize = 22;
/// Integers up to here are doubles.
const EXACT_INTEGER: u64 = 1 << 53;

impl<'a> Number<'a> {
    /// Scans the number that starts at `start`: itself and where it ends, or where a character is
    /// that no number can have there.
    // A call would return by memory, in pieces that the processor waits for.
    #[inline(always)]
    pub(crate) fn scan(text: &'a str, start: usize) -> Result<(Self, usize), usize> {
        let bytes = text.as_bytes();
        let negative = bytes.get(start) == Some(&b'-');
        let first = start + usize::from(negative);
        let (mut digits, mut at) = take_digits(bytes, first, 0);
        let mut count = at - first;
        if count == 0 {
            return Err(at);
        }
        if count > 1 && bytes.get(first) == Some(&b'0') {
            return Err(first + 1);
        }
        let mut exponent = 0;
        if bytes.get(at) == Some(&b'.') {
            let point = at;
            (digits, at) = take_digits(bytes, point + 1, digits);
            let places = at - point - 1;
            if places == 0 {
                return Err(at);
            }
            count += places;
            exponent = -(places as i64);
        }
        let exact = count <= MAX_DIGITS || significant(&bytes[first..at]) <= MAX_DIGITS;
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let (power, end) = take_exponent(bytes, at + 1)?;
            exponent += power;
            at = end;
        }
        Ok((Self { text: &text[start..at], negative, digits, exponent, exact }, at))
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The nearest single; infinite when out of range.
    #[inline]
    pub(crate) fn single(&self) -> f32 {
        match self.quick_single() {
            Some(magnitude) if self.negative => -magnitude,
            Some(magnitude) => magnitude,
            // Every JSON number is one of Rust's.
            None => self.text.parse().unwrap_or(f32::NAN),
        }
    }

    /// By way of a double that is within 3 units in its last place: the conversion's, the power's
    /// and the product's half unit each, doubled by where in its binade it is. Its 29 bits that a
    /// single lacks round the same way for all values that near, unless they are about one half.
    #[inline]
    fn quick_single(&self) -> Option<f32> {
        const DROPPED: u64 = (1 << 29) - 1;
        const HALF: u64 = 1 << 28;
        const DOUBT: u64 = 8;
        let power = self.power()?;
        let scale = if self.exponent < 0 { INVERSES[power] } else { POWERS[power] };
        let wide = self.digits as f64 * scale;
        let doubt = (wide.to_bits() & DROPPED).abs_diff(HALF) <= DOUBT;
        // The smallest is 1e-31, far above where singles lose bits.
        (!doubt).then_some(wide as f32)
    }

    /// The nearest double; infinite when out of range.
    #[inline]
    pub(crate) fn double(&self) -> f64 {
        // Both operands are exact, so that the one operation rounds correctly.
        let magnitude = match self.power() {
            Some(power) if power <= EXACT_POWER && self.digits <= EXACT_INTEGER => {
                let digits = self.digits as f64;
                if self.exponent < 0 { digits / POWERS[power] } else { digits * POWERS[power] }
            }
            _ => return self.text.parse().unwrap_or(f64::NAN),
        };
        if self.negative { -magnitude } else { magnitude }
    }

    /// The power of ten to multiply or divide the digits by, if both are at hand.
    #[inline]
    fn power(&self) -> Option<usize> {
        let power = usize::try_from(self.exponent.unsigned_abs()).ok()?;
        (self.exact && power < POWERS.len()).then_some(power)
    }

    /// The integer that it is exactly, `1.0` and `1e0` included.
    #[inline]
    pub(crate) fn integer(&self) -> Result<i128, NoInteger> {
        let magnitude =
            if self.exact && self.exponent == 0 { self.digits } else { self.shifted()? };
        let value = i128::from(magnitude);
        Ok(if self.negative { -value } else { value })
    }

    /// The magnitude of a number with a fraction, an exponent or more than 19 digits.
    fn shifted(&self) -> Result<u64, NoInteger> {
        let mantissa = self.text.split(['e', 'E']).next().unwrap_or_default();
        let written = || mantissa.bytes().filter(u8::is_ascii_digit);
        let trailing = written().rev().take_while(|byte| *byte == b'0').count();
        let digits = written().count() - trailing;
        if digits == 0 {
            return Ok(0);
        }
        let exponent = self.exponent.saturating_add(i64::try_from(trailing).unwrap_or(i64::MAX));
        // The last digit is not zero: below the point it is a fraction.
        let exponent = u32::try_from(exponent)
            .map_err(|_| if exponent < 0 { NoInteger::Fraction } else { NoInteger::TooLarge })?;
        written()
            .take(digits)
            .try_fold(0_u64, |value, byte| {
                value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
            })
            .and_then(|value| value.checked_mul(10_u64.checked_pow(exponent)?))
            .ok_or(NoInteger::TooLarge)
    }
}

/// Digits apart from leading zeros; the text may hold a point.
#[cold]
fn significant(text: &[u8]) -> usize {
    let zeros = text.iter().take_while(|byte| matches!(byte, b'0' | b'.')).count();
    text[zeros..].iter().filter(|byte| byte.is_ascii_digit()).count()
}

/// Reads digits from `at`, appending them to `value` modulo 2^64: the value and where they end.
#[inline(always)]
fn take_digits(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(eight) =
        bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).and_then(eight_digits)
    {
        value = value.wrapping_mul(100_000_000).wrapping_add(eight);
        at += 8;
    }
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|d| *d < 10) {
        value = value.wrapping_mul(10).wrapping_add(digit.into());
        at += 1;
    }
    (value, at)
}

/// The value of eight digits, all eight bytes at once.
#[inline]
fn eight_digits(chunk: &[u8; 8]) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let word = u64::from_le_bytes(*chunk);
    // High halves are 3, and stay 3 when 6 is added: 0 to 9.
    let all = word & HIGH == ZEROS && word.wrapping_add(0x0606_0606_0606_0606) & HIGH == ZEROS;
    if !all {
        return None;
    }
    // Pairs, then fours, then eight; the first digit is the lowest byte.
    let word = word - ZEROS;
    let word = word.wrapping_mul(10).wrapping_add(word >> 8) & 0x00ff_00ff_00ff_00ff;
    let word = word.wrapping_mul(100).wrapping_add(word >> 16) & 0x0000_ffff_0000_ffff;
    Some(word.wrapping_mul(10_000).wrapping_add(word >> 32) & 0xffff_ffff)
}

/// Reads the exponent that follows an `e`; huge ones are held at a bound beyond every range.
#[inline(never)]
fn take_exponent(bytes: &[u8], start: usize) -> Result<(i64, usize), usize> {
    const BOUND: i64 = 1 << 40;
    let negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(matches!(bytes.get(start), Some(b'-' | b'+')));
    let digits = bytes[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return Err(first);
    }
    let end = first + digits;
    let power = bytes[first..end]
        .iter()
        .fold(0_i64, |power, byte| (power * 10 + i64::from(byte - b'0')).min(BOUND));
    Ok((if negative { -power } else { power }, end))
}
