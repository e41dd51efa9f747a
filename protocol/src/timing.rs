//! `Server-Timing` as hops write and read it: named durations in milliseconds.

use std::{fmt::Write, time::Duration};

/// Appends `name;dur=<ms>` to a header value under construction.
pub fn push(value: &mut String, name: &str, duration: Duration) {
    if !value.is_empty() {
        value.push_str(", ");
    }
    let written = write!(value, "{name};dur={:.3}", duration.as_secs_f64() * 1e3);
    debug_assert!(written.is_ok());
}

/// Every metric of a header value with its duration; entries without one are skipped.
pub fn entries(value: &str) -> impl Iterator<Item = (&str, Duration)> {
    value.split(',').filter_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let millis: f64 = parts.find_map(|part| part.strip_prefix("dur="))?.parse().ok()?;
        Some((name, Duration::try_from_secs_f64(millis / 1e3).ok()?))
    })
}

/// The duration of the metric called `name`.
#[must_use]
pub fn find(value: &str, name: &str) -> Option<Duration> {
    entries(value).find(|entry| entry.0 == name).map(|entry| entry.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_junk() {
        let mut value = String::new();
        push(&mut value, "queue", Duration::from_micros(12));
        push(&mut value, "run", Duration::from_millis(3));
        assert_eq!(value, "queue;dur=0.012, run;dur=3.000");
        assert_eq!(find(&value, "run"), Some(Duration::from_millis(3)));
        assert_eq!(
            find("a;dur=-1, b;desc=x, ;dur=2, c;dur=nan, run;desc=\"y\";dur=1", "run"),
            Some(Duration::from_millis(1))
        );
        assert_eq!(entries("a;dur=-1, ;dur=2, c;dur=NaN, d").count(), 0);
    }
}
