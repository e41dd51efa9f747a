//! Progress bars on standard error; nothing is drawn where no terminal is.

use indicatif::{ProgressBar, ProgressStyle};

#[cfg(any(feature = "split", feature = "tools"))]
const COUNT: &str = "{msg} [{bar:32}] {pos}/{len} {elapsed} (left {eta})";
const BYTES: &str = "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec}";
const UNKNOWN: &str = "{spinner} {msg} {bytes} {bytes_per_sec}";

fn styled(bar: ProgressBar, template: &str, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(message)
}

/// For a known number of steps.
#[cfg(any(feature = "split", feature = "tools"))]
pub(crate) fn counting(total: u64, message: &'static str) -> ProgressBar {
    styled(ProgressBar::new(total), COUNT, message)
}

/// For a known number of bytes.
pub(crate) fn bytes(total: u64, message: &'static str) -> ProgressBar {
    styled(ProgressBar::new(total), BYTES, message)
}

/// For bytes of which nobody says how many there will be.
pub(crate) fn unknown(message: &'static str) -> ProgressBar {
    styled(ProgressBar::no_length(), UNKNOWN, message)
}
