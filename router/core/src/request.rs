//! What the core is told of a request. Decides nothing; holds no header, body
//! or name, so that a record of it carries no personal data beyond a place.

use crate::hash::AffinityKey;
use crate::place::{Place, RegionSet};
use crate::units::{Micros, Probability};

/// A model version, numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u32);

/// How large the request's body is: larger ones need further round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PayloadClass {
    /// At most 14 KiB: fits the initial congestion window.
    #[default]
    Small,
    /// At most 128 KiB: one more round trip on a warm connection.
    Medium,
    /// Larger: two more.
    Large,
}

impl PayloadClass {
    /// The class of a body of so many bytes.
    pub const fn of_len(bytes: u64) -> Self {
        match bytes {
            0..=14_336 => Self::Small,
            14_337..=131_072 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// Its name in renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// Round trips a request of this class takes.
    pub(crate) const fn round_trips(self) -> u64 {
        match self {
            Self::Small => 1,
            Self::Medium => 2,
            Self::Large => 3,
        }
    }
}

/// A request as the decision sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The model asked for.
    pub model: ModelId,
    /// Regions that may answer.
    pub allowed: RegionSet,
    /// Requests with the same key prefer the same node; none: no preference.
    pub key: Option<AffinityKey>,
    /// Time left when the decision is made.
    pub deadline: Option<Micros>,
    /// Size of the body.
    pub payload: PayloadClass,
    /// Probability that an edge node finds the case hard and offloads it.
    pub hard: Probability,
    /// Where the client is, if known. Used for distances only when the
    /// topology does not say where the router is.
    pub client: Option<Place>,
    /// Round trip between client and router, if known: half of it is taken
    /// off the deadline for the answer's way back.
    pub client_rtt: Option<Micros>,
}

impl Request {
    /// A small request for a model, allowed anywhere, with no key and no deadline.
    pub const fn new(model: ModelId) -> Self {
        Self {
            model,
            allowed: RegionSet::ALL,
            key: None,
            deadline: None,
            payload: PayloadClass::Small,
            hard: Probability::ZERO,
            client: None,
            client_rtt: None,
        }
    }

    /// What a node may take until its answer leaves the router in time.
    pub fn budget(&self) -> Option<Micros> {
        let back = self.client_rtt.map_or(Micros::ZERO, |rtt| Micros(rtt.0 / 2));
        self.deadline.map(|deadline| deadline.minus(back))
    }
}
