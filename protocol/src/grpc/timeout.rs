//! The deadline that a gRPC call states: `grpc-timeout`, one to eight digits and a unit.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// What is left of the caller's deadline when the call is sent.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Digits that a value may have.
const MOST_DIGITS: usize = 8;

/// What is left of the caller's deadline, if the call states one. Zero is a deadline that has
/// passed.
///
/// # Errors
/// A value that is no timeout, as a message for the caller.
pub fn timeout(map: &HeaderMap) -> Result<Option<Duration>, String> {
    let Some(value) = map.get(GRPC_TIMEOUT) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse);
    parsed.map(Some).ok_or_else(|| {
        format!("{GRPC_TIMEOUT} is {value:?}, not 1 to 8 digits and one of H, M, S, m, u, n")
    })
}

/// Writes milliseconds as a value; where eight digits do not hold them, in the next coarser unit,
/// rounded down.
#[must_use]
pub fn format(millis: u64) -> String {
    const MOST: u64 = 99_999_999;
    for (unit, size) in [('m', 1), ('S', 1_000), ('M', 60_000)] {
        if millis / size <= MOST {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{}H", (millis / 3_600_000).min(MOST))
}

fn parse(text: &str) -> Option<Duration> {
    let (unit_at, unit) = text.char_indices().next_back()?;
    let digits = text.get(..unit_at)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || digits.len() > MOST_DIGITS {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(count * 3600)),
        'M' => Some(Duration::from_secs(count * 60)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Result<Option<Duration>, String> {
        let map = HeaderMap::from_iter([(GRPC_TIMEOUT, value.parse().unwrap())]);
        timeout(&map)
    }

    #[test]
    fn every_unit_is_read() {
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
        for (value, expected) in [
            ("5010m", Duration::from_millis(5010)),
            ("1S", Duration::from_secs(1)),
            ("2M", Duration::from_secs(120)),
            ("3H", Duration::from_secs(10_800)),
            ("7u", Duration::from_micros(7)),
            ("0n", Duration::ZERO),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(of(value), Ok(Some(expected)), "{value}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "m", "5", "100000000m", "-1m", "+1m", "1.5S", "1 S", "1s", "1h", "1mm"] {
            assert!(of(bad).unwrap_err().contains("grpc-timeout"), "{bad}");
        }
        let map = HeaderMap::from_iter([(GRPC_TIMEOUT, "1é".parse().unwrap())]);
        assert!(timeout(&map).is_err());
    }

    #[test]
    fn what_is_written_is_read_and_never_longer() {
        for millis in [1, 250, 99_999_999, 100_000_000, 99_999_999_999, 100_000_000_000, u64::MAX] {
            let text = format(millis);
            let read = of(&text).unwrap().unwrap();
            assert!(read <= Duration::from_millis(millis) && !read.is_zero(), "{millis}: {text}");
        }
    }
}
