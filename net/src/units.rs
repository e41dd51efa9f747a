//! Quantities in configuration files: text with a unit, parsed once, refused with the reason.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A duration such as `250ms`, `1s` or `2m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes such as `64KiB` or `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Span {
    /// Whole milliseconds.
    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl Size {
    /// As a length in memory, saturating on small machines.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|error| format!("not a duration such as \"250ms\" or \"2s\": {error}"))
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with(|last: char| last.is_ascii_digit()) {
            return Err("has no unit; a size is such as \"64KiB\" or \"64MiB\"".into());
        }
        text.parse::<bytesize::ByteSize>()
            .map(|size| Self(size.as_u64()))
            .map_err(|error| format!("not a size such as \"64KiB\" or \"64MiB\": {error}"))
    }
}

macro_rules! text_serde {
    ($type:ident, $pattern:literal, $description:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern, "format": $description})
            }
        }
    };
}

text_serde!(Span, r"^[0-9].*[a-z]$", "duration");
text_serde!(Size, r"^[0-9].*[A-Za-z]?$", "size");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["250ms", "2s", "1m 30s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["64KiB", "64MiB", "2GiB", "100B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert!("fast".parse::<Span>().is_err());
        assert!("64MB!".parse::<Size>().is_err());
        assert!("9000000".parse::<Size>().unwrap_err().contains("no unit"));
    }
}
