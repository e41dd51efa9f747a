//! Where an answer was made, and what the app may ask of the early exit.

use std::fmt;

/// The place that gave one row's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnsweredBy {
    /// An early exit of the edge node; counted from 1.
    Exit(u8),
    /// The whole model on the asked node.
    Local,
    /// A cloud node, from the activation that the edge sent.
    Cloud,
}

impl AnsweredBy {
    /// Parses `exit:<n>`, `local` or `cloud`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "local" => Some(Self::Local),
            "cloud" => Some(Self::Cloud),
            _ => text.strip_prefix("exit:")?.parse().ok().filter(|n| *n > 0).map(Self::Exit),
        }
    }

    /// Whether the answer was made without the uplink.
    #[must_use]
    pub fn at_edge(self) -> bool {
        self != Self::Cloud
    }
}

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(n) => write!(f, "exit:{n}"),
            Self::Local => f.write_str("local"),
            Self::Cloud => f.write_str("cloud"),
        }
    }
}

/// What a request asks of the early exit (`midspan-exit`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitMode {
    /// The calibrated threshold decides.
    #[default]
    Auto,
    /// Every row takes the full path.
    Never,
    /// Every row is answered at the exit; the answer is uncertified.
    Force,
}

impl ExitMode {
    /// Parses `auto`, `never` or `force`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "never" => Some(Self::Never),
            "force" => Some(Self::Force),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_round_trip_and_refuse_the_rest() {
        for place in
            [AnsweredBy::Exit(1), AnsweredBy::Exit(255), AnsweredBy::Local, AnsweredBy::Cloud]
        {
            assert_eq!(AnsweredBy::parse(&place.to_string()), Some(place));
        }
        for bad in ["exit:0", "exit:256", "exit:", "edge", ""] {
            assert_eq!(AnsweredBy::parse(bad), None, "{bad}");
        }
    }
}
