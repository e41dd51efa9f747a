//! The Python with ONNX Runtime's quantisation tools: a virtual environment in the user's cache,
//! made once of wheels that are pinned by hash. It is filled under another name and renamed when it
//! is whole. It must not touch anything outside the cache folder, and prints nothing.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use midspan_runtime::install::{bytes_below, wait};
use midspan_runtime::library::{self, LibraryError};

use crate::digest::Digest;

const REQUIREMENTS: &str = include_str!("requirements.txt");
/// The interpreters that there are wheels for.
const VERSIONS: [&str; 4] = ["3.11", "3.12", "3.13", "3.14"];
/// The end of what a child said that is kept for a message.
const KEPT: u64 = 64 << 10;

/// Why there is no such Python.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// There is no cache folder.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// `python3` is not there.
    #[error("quantising needs {python}, which was not found; install Python {}", versions())]
    NoPython {
        /// The program that was tried.
        python: String,
    },
    /// `python3` is another version.
    #[error("quantising needs Python {}, {python} is {got}", versions())]
    Version {
        /// The program that was tried.
        python: String,
        /// Its version.
        got: String,
    },
    /// `python3` is there, but cannot make virtual environments.
    #[error(
        "quantising needs a virtual environment, which {python} cannot make (Debian: apt install \
         python3-venv): {detail}"
    )]
    NoVenv {
        /// The program that was tried.
        python: String,
        /// What it said.
        detail: String,
    },
    /// pip could not fetch or install the packages.
    #[error("pip cannot install what quantising needs ({status}): {detail}")]
    Pip {
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        detail: String,
    },
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn versions() -> String {
    format!("{} to {}", VERSIONS[0], VERSIONS[VERSIONS.len() - 1])
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> EnvironmentError + 'a {
    move |source| EnvironmentError::Io { doing, path: path.to_owned(), source }
}

/// A Python that can quantise.
#[derive(Clone, Debug)]
pub struct Environment {
    python: PathBuf,
}

impl Environment {
    /// The environment in the user's cache, made first where there is none. `progress` is called
    /// with the bytes that are there so far.
    ///
    /// # Errors
    /// [`EnvironmentError`]; nothing is left behind then.
    pub fn ensure(progress: &mut dyn FnMut(u64)) -> Result<Self, EnvironmentError> {
        let library = library::cache_path()?;
        let cache = library.ancestors().nth(2).unwrap_or(Path::new("/"));
        Self::ensure_in(cache, "python3", progress)
    }

    pub(super) fn ensure_in(
        cache: &Path,
        python: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, EnvironmentError> {
        let version = version(python)?;
        let digest = Digest::of(REQUIREMENTS.as_bytes()).to_string();
        let home = cache.join(format!("quantise-{}-py{version}", &digest[..12]));
        let ready = Self { python: home.join("bin").join("python") };
        // It is a link to the interpreter that made it, which may be gone since.
        if ready.python.is_file() {
            return Ok(ready);
        }
        fs::create_dir_all(cache).map_err(failed("create", cache))?;
        let scratch = tempfile::Builder::new()
            .prefix(".quantise-")
            .tempdir_in(cache)
            .map_err(failed("create a folder in", cache))?;
        let made = scratch.path().join("venv");
        fill(python, scratch.path(), &made, progress)?;
        if home.exists() && !ready.python.is_file() {
            let old = scratch.path().join("old");
            fs::rename(&home, &old).map_err(failed("replace", &home))?;
        }
        match fs::rename(&made, &home) {
            // Another process was faster.
            Err(_) if ready.python.is_file() => {}
            renamed => renamed.map_err(failed("write", &home))?,
        }
        Ok(ready)
    }

    /// The interpreter, told to look at nothing but its own packages.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.arg("-I");
        command
    }
}

/// The interpreter's version, when there are wheels for it.
fn version(python: &str) -> Result<String, EnvironmentError> {
    let ask = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new(python).args(["-I", "-c", ask]).stdin(Stdio::null()).output();
    let output = output.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => EnvironmentError::NoPython { python: python.to_owned() },
        _ => failed("run", Path::new(python))(source),
    })?;
    let got = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if VERSIONS.contains(&got.as_str()) {
        return Ok(got);
    }
    let got = if got.is_empty() { "none of them".to_owned() } else { got };
    Err(EnvironmentError::Version { python: python.to_owned(), got })
}

fn fill(
    python: &str,
    scratch: &Path,
    made: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), EnvironmentError> {
    let mut venv = Command::new(python);
    venv.args(["-I", "-m", "venv"]).arg(made);
    let (status, said) = run(venv, scratch, progress)?;
    if !status.success() {
        return Err(EnvironmentError::NoVenv { python: python.to_owned(), detail: said });
    }
    let pinned = scratch.join("requirements.txt");
    fs::write(&pinned, REQUIREMENTS).map_err(failed("write", &pinned))?;
    let mut pip = Command::new(made.join("bin").join("python"));
    pip.args([
        "-I",
        "-m",
        "pip",
        "install",
        "--require-hashes",
        "--only-binary=:all:",
        "--no-deps",
    ])
    .args(["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet", "-r"])
    .arg(&pinned)
    .env("TMPDIR", scratch);
    let (status, detail) = run(pip, scratch, progress)?;
    if status.success() { Ok(()) } else { Err(EnvironmentError::Pip { status, detail }) }
}

/// Runs a child to its end; how it ended, and the last lines of what it said.
fn run(
    mut command: Command,
    scratch: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(ExitStatus, String), EnvironmentError> {
    let path = scratch.join("said.log");
    let log = File::create(&path).map_err(failed("create", &path))?;
    let both = log.try_clone().map_err(failed("create", &path))?;
    let program = PathBuf::from(command.get_program());
    let child = command.stdin(Stdio::null()).stdout(both).stderr(log).spawn();
    let child = child.map_err(failed("run", &program))?;
    let status =
        wait(child, || progress(bytes_below(scratch))).map_err(failed("wait for", &program))?;
    Ok((status, last_lines(&path)))
}

/// The last lines of a file, as one.
pub(super) fn last_lines(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _unreadable = File::open(path).and_then(|mut file| {
        let start = file.metadata()?.len().saturating_sub(KEPT);
        io::Seek::seek(&mut file, io::SeekFrom::Start(start))?;
        file.take(KEPT).read_to_end(&mut bytes)
    });
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}
