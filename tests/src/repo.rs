//! The repository as files: where it is, what it holds, how a generated file is compared or
//! written anew. It judges nothing.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Folders that hold no sources: build output, and inputs found by fuzzing, which are bytes of any
/// kind.
const SKIPPED: [&str; 4] = ["target", "corpus", "artifacts", "found"];

/// Version control, editors and environments have hidden folders; these are the project's.
const HIDDEN: [&str; 2] = [".ci", ".cargo"];

/// The repository's top folder.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).map(Path::to_owned).unwrap_or_default()
}

/// Every file of the repository but logs, by its path from [`root`], in order of path.
///
/// # Errors
/// A folder that cannot be read.
pub fn files() -> io::Result<Vec<PathBuf>> {
    let root = root();
    let mut found = Vec::new();
    let mut pending = vec![root.clone()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let skipped = entry.file_name().to_str().is_none_or(skips);
            match entry.file_type()? {
                kind if kind.is_dir() && !skipped => pending.push(entry.path()),
                kind if kind.is_file() && !is_log(&entry.path()) => {
                    found.extend(entry.path().strip_prefix(&root).ok().map(Path::to_owned));
                }
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

fn skips(folder: &str) -> bool {
    SKIPPED.contains(&folder) || (folder.starts_with('.') && !HIDDEN.contains(&folder))
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "log")
}

/// Whether generated files are to be written instead of compared: `MIDSPAN_BLESS=1`.
#[must_use]
pub fn blessing() -> bool {
    std::env::var("MIDSPAN_BLESS").is_ok_and(|value| value == "1")
}

/// Compares a generated file with what it is to hold; writes it when [`blessing`].
///
/// # Errors
/// When the file differs, with the first line that does, or cannot be read or written.
pub fn check_generated(path: &Path, expected: &str) -> Result<(), String> {
    let file = root().join(path);
    if blessing() {
        return fs::write(&file, expected).map_err(|error| format!("{}: {error}", path.display()));
    }
    let found =
        fs::read_to_string(&file).map_err(|error| format!("{}: {error}", path.display()))?;
    if found == expected {
        return Ok(());
    }
    let same = found.lines().zip(expected.lines()).take_while(|(a, b)| a == b).count();
    Err(format!(
        "{}:{}: is {:?}, expected {:?}; MIDSPAN_BLESS=1 writes it anew",
        path.display(),
        same + 1,
        found.lines().nth(same).unwrap_or_default(),
        expected.lines().nth(same).unwrap_or_default(),
    ))
}
