//! Targets of the configuration files.

use std::{fmt::Debug, path::Path};

use midspan_net::config::{ConfigError, Validate, parse};
use serde::Serialize;

use super::Outcome::{self, Refused, Taken};

/// A file of the router.
pub(super) fn router_config(data: &[u8]) -> Outcome {
    check::<midspan_router::RawConfig>(data)
}

/// A file of a node. Relative paths start in a folder that does not exist.
pub(super) fn node_config(data: &[u8]) -> Outcome {
    check::<midspan_node::RawConfig>(data)
}

fn check<R: Validate<Valid: Debug> + Serialize>(data: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(data) else { return Refused };
    let read = |text: &str| parse::<R>("a.toml", text, Path::new("/nonexistent"));
    let valid = match read(text) {
        Ok(valid) => valid,
        Err(error) => {
            let ConfigError::Key { line, problem, .. } = &error else {
                panic!("no file was read: {error}")
            };
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(line), "line {line} of {lines}: {error}");
            assert!(!problem.is_empty(), "an error without a reason: {error}");
            return Refused;
        }
    };
    let raw: R = match toml::from_str(text) {
        Ok(raw) => raw,
        Err(error) => panic!("validated, but not read again: {error}"),
    };
    let written = toml::to_string(&raw).unwrap_or_else(|error| panic!("not written: {error}"));
    let again = read(&written).unwrap_or_else(|error| panic!("own text is refused: {error}"));
    assert_eq!(format!("{again:?}"), format!("{valid:?}"), "through {written}");
    Taken
}
