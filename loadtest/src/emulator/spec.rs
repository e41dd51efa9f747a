//! What a link is like: bandwidth each way, delay, jitter; its text form and the presets.
//!
//! Text form: an optional preset, then `key=value` pairs, separated by commas:
//! `4g`, `4g,jitter=5ms`, `up=5Mbps,down=20Mbps,rtt=40ms`. `none` for a bandwidth means unlimited.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// Longest delay or jitter accepted; beyond it a typing error is likelier than a link.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A bandwidth in bits per second, never zero (a link of no bandwidth is an outage).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitsPerSecond(u64);

impl BitsPerSecond {
    /// The highest rate that can be emulated: 1 Tbps.
    pub const MAX: Self = Self(1_000_000_000_000);

    /// A rate; `None` when it is zero or above [`Self::MAX`].
    #[must_use]
    pub const fn new(bits: u64) -> Option<Self> {
        if bits == 0 || bits > Self::MAX.0 { None } else { Some(Self(bits)) }
    }

    /// The number of bits per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long `bytes` occupy the line at this rate, rounded up to a nanosecond.
    #[must_use]
    pub fn time_for(self, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Bytes that fit into `time` at this rate.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0) * time.as_nanos() / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl FromStr for BitsPerSecond {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let bad = || SpecError::Rate(text.to_owned());
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let scale = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "bps" => 1.0,
            "kbps" => 1e3,
            "mbps" => 1e6,
            "gbps" => 1e9,
            _ => return Err(bad()),
        };
        let bits = digits.parse::<f64>().map_err(|_| bad())? * scale;
        if !(1.0..=Self::MAX.0 as f64).contains(&bits) {
            return Err(bad());
        }
        Self::new(bits.round() as u64).ok_or_else(bad)
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits >= 1_000_000 => write!(f, "{}Mbps", bits as f64 / 1e6),
            bits if bits >= 1_000 => write!(f, "{}kbps", bits as f64 / 1e3),
            bits => write!(f, "{bits}bps"),
        }
    }
}

/// What a link is like. `up` is from the dialling side to the target, `down` the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkSpec {
    /// Bandwidth towards the target, shared by all connections; `None` is unlimited.
    pub up: Option<BitsPerSecond>,
    /// Bandwidth from the target, shared by all connections; `None` is unlimited.
    pub down: Option<BitsPerSecond>,
    /// Round trip of the empty link; half of it each way.
    pub rtt: Duration,
    /// Up to this much is added to each one-way delay, uniformly; order is kept.
    pub jitter: Duration,
}

impl LinkSpec {
    /// Names that [`LinkSpec::preset`] knows.
    pub const PRESETS: [&'static str; 4] = ["wifi", "4g", "3g", "none"];

    /// A named link; `none` adds nothing.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let (up, down, rtt) = match name {
            "wifi" => (18_880_000, 54_970_000, 8),
            "4g" => (5_850_000, 13_760_000, 50),
            "3g" => (1_100_000, 2_030_000, 120),
            "none" => return Some(Self::default()),
            _ => return None,
        };
        Some(Self {
            up: BitsPerSecond::new(up),
            down: BitsPerSecond::new(down),
            rtt: Duration::from_millis(rtt),
            jitter: Duration::ZERO,
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let rate = || if value == "none" { Ok(None) } else { value.parse().map(Some) };
        let delay = || {
            humantime::parse_duration(value)
                .ok()
                .filter(|delay| *delay <= MAX_DELAY)
                .ok_or_else(|| SpecError::Delay { key: key.to_owned(), value: value.to_owned() })
        };
        match key {
            "up" => self.up = rate()?,
            "down" => self.down = rate()?,
            "rtt" => self.rtt = delay()?,
            "jitter" => self.jitter = delay()?,
            "loss" => return Err(SpecError::Loss),
            _ => return Err(SpecError::Key(key.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for LinkSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        for (index, part) in text.split(',').map(str::trim).enumerate() {
            match part.split_once('=') {
                Some((key, value)) => spec.set(key.trim(), value.trim())?,
                None if index == 0 => {
                    spec = Self::preset(part).ok_or_else(|| SpecError::Preset(part.to_owned()))?;
                }
                None => return Err(SpecError::Key(part.to_owned())),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preset = Self::PRESETS.into_iter().find(|name| {
            Self::preset(name).is_some_and(|p| Self { jitter: self.jitter, ..p } == *self)
        });
        match preset {
            Some(name) => f.write_str(name)?,
            None => {
                let rate = |rate: Option<BitsPerSecond>| {
                    rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string())
                };
                let rtt = compact(self.rtt);
                write!(f, "up={},down={},rtt={rtt}", rate(self.up), rate(self.down))?;
            }
        }
        if self.jitter.is_zero() {
            return Ok(());
        }
        write!(f, ",jitter={}", compact(self.jitter))
    }
}

fn compact(time: Duration) -> String {
    humantime::format_duration(time).to_string().replace(' ', "")
}

impl TryFrom<String> for LinkSpec {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<LinkSpec> for String {
    fn from(spec: LinkSpec) -> Self {
        spec.to_string()
    }
}

/// A link description that cannot be understood or emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not a preset.
    #[error("link '{0}': not a preset (wifi, 4g, 3g, none) and not key=value")]
    Preset(String),
    /// An unknown key.
    #[error("link key '{0}': expected up, down, rtt or jitter")]
    Key(String),
    /// Not a bandwidth.
    #[error("bandwidth '{0}': expected none or 1bps to 1000Gbps, for example 5Mbps or 640kbps")]
    Rate(String),
    /// Not a delay.
    #[error("link key '{key}': expected a time of at most 60s such as 40ms, got '{value}'")]
    Delay {
        /// `rtt` or `jitter`.
        key: String,
        /// What was given.
        value: String,
    },
    /// Packet loss was wished for.
    #[error(
        "link key 'loss': a TCP relay carries byte streams and cannot lose packets; use the TUN \
         emulator for loss"
    )]
    Loss,
    /// Not an outage.
    #[error("outage '{0}': expected none, blackhole or refuse")]
    Outage(String),
}

#[cfg(test)]
mod tests;
