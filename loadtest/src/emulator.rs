//! A link between two sites of one machine: a TCP relay that adds a WAN's delay, jitter, bandwidth
//! and outages in real time.
//!
//! It relays byte streams, so it cannot lose, reorder or corrupt packets and does not see TCP's own
//! headers; what TCP makes of loss is out of its reach. It decides nothing about requests.

mod link;
mod pump;
mod shaper;
mod spec;

pub use link::{Counters, Link};
pub use spec::{BitsPerSecond, LinkSpec, SpecError};

/// What is broken about a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outage {
    /// Nothing: the link works.
    #[default]
    None,
    /// Silence: open connections stay open and deliver nothing, new ones are completed by the
    /// kernel and stay mute. What was on the way or is sent meanwhile arrives after restoration,
    /// as TCP would have it.
    Blackhole,
    /// Open connections are reset, new ones too, at once.
    Refuse,
}

impl std::str::FromStr for Outage {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "none" => Ok(Self::None),
            "blackhole" => Ok(Self::Blackhole),
            "refuse" => Ok(Self::Refuse),
            _ => Err(SpecError::Outage(text.to_owned())),
        }
    }
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Blackhole => "blackhole",
            Self::Refuse => "refuse",
        })
    }
}
