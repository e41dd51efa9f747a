//! Configuration files: raw TOML → validated value, one path. An error names file, line, key and
//! value. What the keys mean is decided by the crate that owns the type.

use std::{fmt::Write as _, fs, ops::Range, path::Path};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: {problem}")]
    Read {
        /// Its path.
        file: String,
        /// The system's reason.
        problem: String,
    },
    /// A key or value is wrong.
    #[error("{file}:{line}: {}{problem}", shown(key, value.as_deref()))]
    Key {
        /// The file's path.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Dotted path of the key; empty for a syntax error.
        key: String,
        /// The value as written, when it is one line.
        value: Option<String>,
        /// What is wrong with it.
        problem: String,
    },
}

fn shown(key: &str, value: Option<&str>) -> String {
    match value {
        _ if key.is_empty() => String::new(),
        Some(value) => format!("{key} = {value}: "),
        None => format!("{key}: "),
    }
}

/// What validation found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Dotted path, with `name[index]` for array members, for example `node[1].url`.
    pub key: String,
    /// What is wrong with the value.
    pub problem: String,
}

impl Problem {
    /// A problem at `key`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

/// A raw configuration that can become a validated one.
pub trait Validate: DeserializeOwned {
    /// The validated, immutable form.
    type Valid;

    /// Checks every value. `base` is the folder that relative paths start from.
    ///
    /// # Errors
    /// The first value that cannot be used.
    fn validate(self, base: &Path) -> Result<Self::Valid, Problem>;
}

/// Loads and validates a file.
///
/// # Errors
/// See [`ConfigError`].
pub fn load<R: Validate>(path: &Path) -> Result<R::Valid, ConfigError> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::Read { file: file.clone(), problem: error.to_string() })?;
    parse::<R>(&file, &text, path.parent().unwrap_or(Path::new(".")))
}

/// Parses and validates `text`; `file` is only named in errors.
///
/// # Errors
/// See [`ConfigError`].
pub fn parse<R: Validate>(file: &str, text: &str, base: &Path) -> Result<R::Valid, ConfigError> {
    let syntax = |error: toml::de::Error| at(file, text, error.span(), "", error.message());
    let deserializer = toml::Deserializer::parse(text).map_err(syntax)?;
    let raw: R = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let key = error.path().to_string();
        let key = if key == "." { String::new() } else { bracketed(&key) };
        let inner = error.into_inner();
        at(file, text, inner.span(), &key, inner.message())
    })?;
    raw.validate(base).map_err(|problem| {
        let span = find(text, &problem.key);
        at(file, text, span, &problem.key, &problem.problem)
    })
}

/// `node.1.url` as serde_path_to_error may write it → `node[1].url`.
fn bracketed(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('.') {
        if part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() {
            let _infallible = write!(out, "[{part}]");
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(part);
        }
    }
    out
}

fn at(file: &str, text: &str, span: Option<Range<usize>>, key: &str, problem: &str) -> ConfigError {
    let span = span.unwrap_or(0..0);
    let line = text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1);
    let value = text
        .get(span)
        .map(str::trim)
        .filter(|value| !key.is_empty() && !value.is_empty() && value.len() <= 80)
        .filter(|value| !value.contains('\n') && !value.starts_with('['))
        // The span of an unknown key is the key itself.
        .filter(|value| !key.ends_with(value))
        .map(str::to_owned);
    let problem = problem.lines().next().unwrap_or_default().to_owned();
    ConfigError::Key { file: file.to_owned(), line, key: key.to_owned(), value, problem }
}

/// Where `key` stands in the file, or the nearest table above it that exists.
fn find(text: &str, key: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let mut span = None;
    let mut at: &DeValue<'_> = &DeValue::Table(table.into_inner());
    for part in key.replace('[', ".[").split('.') {
        let index = part.strip_prefix('[').and_then(|part| part.strip_suffix(']'));
        let next = match (at, index) {
            (DeValue::Array(array), Some(index)) => array.get(index.parse::<usize>().ok()?),
            (DeValue::Table(table), None) => table.get(part),
            _ => None,
        };
        let Some(next) = next else { break };
        span = Some(next.span());
        at = next.get_ref();
    }
    span
}

mod docs;
pub use docs::markdown;

#[cfg(test)]
mod tests;
