//! Installs ONNX Runtime into the user's cache: `pip` fetches one pinned wheel, whose hash it and
//! this module check, and the library is unpacked beside its final place and renamed into it. At
//! no time is there half a library under the final name, and several processes may install at
//! once. It must not touch anything outside the cache folder, and prints nothing.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::library::{self, LibraryError, PATH_VARIABLE, VERSION};

/// How far an installation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The wheel is being fetched.
    Downloading {
        /// Bytes that have arrived so far.
        bytes: u64,
    },
    /// The library is being unpacked from the wheel.
    Unpacking {
        /// Bytes written.
        bytes: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The library is in its place.
    Done {
        /// Its file.
        path: PathBuf,
    },
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no wheel for this machine.
    #[error(
        "there is no ONNX Runtime wheel for {target}; build or fetch version {VERSION} yourself \
         and name its library in {PATH_VARIABLE}"
    )]
    Unsupported {
        /// Architecture and system.
        target: String,
    },
    /// There is no cache folder, or what arrived is no library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// `python3` is not there.
    #[error(
        "installing ONNX Runtime needs {python}, which was not found; install Python 3 with pip, \
         or name a library in {PATH_VARIABLE}"
    )]
    NoPython {
        /// The program that was tried.
        python: String,
    },
    /// `python3` is there, but `pip` is not.
    #[error(
        "installing ONNX Runtime needs pip, which {python} does not have (Debian: apt install \
         python3-pip); or name a library in {PATH_VARIABLE}"
    )]
    NoPip {
        /// The program that was tried.
        python: String,
    },
    /// The package index could not be reached.
    #[error("cannot fetch onnxruntime {VERSION} from the package index: {detail}")]
    Network {
        /// What pip said.
        detail: String,
    },
    /// What arrived is not what was pinned.
    #[error("the onnxruntime {VERSION} wheel that arrived is not the pinned one: {detail}")]
    WrongHash {
        /// The two hashes, or what pip said of them.
        detail: String,
    },
    /// pip failed for another reason.
    #[error("pip failed ({status}): {detail}")]
    Pip {
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        detail: String,
    },
    /// The wheel is not as expected inside.
    #[error("{}: {reason}", .wheel.display())]
    Wheel {
        /// The wheel's file.
        wheel: PathBuf,
        /// What is wrong with it.
        reason: String,
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

/// More than any build of the library takes: a wheel that claims more is not unpacked.
const LARGEST_LIBRARY: u64 = 512 << 20;

struct Wheel {
    platform: &'static str,
    sha256: &'static str,
}

const WHEELS: [(&str, Wheel); 2] = [
    (
        "x86_64",
        Wheel {
            platform: "manylinux_2_28_x86_64",
            sha256: "5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d",
        },
    ),
    (
        "aarch64",
        Wheel {
            platform: "manylinux_2_28_aarch64",
            sha256: "2303372a85299b6757b0e11e1cbf13e410ddf7e10c37f4b37e99d1c90e7daf7c",
        },
    ),
];

/// Installs the library into the user's cache, unless a sound one is there already, and returns
/// its file.
///
/// # Errors
/// [`InstallError`]; nothing is left behind then.
pub fn install(progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, InstallError> {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let wheel = WHEELS
        .iter()
        .find(|(name, _)| *name == arch && os == "linux")
        .map(|(_, wheel)| wheel)
        .ok_or_else(|| InstallError::Unsupported { target: format!("{arch}-{os}") })?;
    let target = library::cache_path()?;
    Installer { python: "python3", wheel, target: &target }.install(progress)
}

struct Installer<'a> {
    python: &'a str,
    wheel: &'a Wheel,
    target: &'a Path,
}

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> InstallError + 'a {
    move |source| InstallError::Io { doing, path: path.to_owned(), source }
}

impl Installer<'_> {
    fn install(&self, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, InstallError> {
        let done = |progress: &mut dyn FnMut(Progress)| {
            progress(Progress::Done { path: self.target.to_owned() });
            Ok(self.target.to_owned())
        };
        if library::check_file(self.target).is_ok() {
            return done(progress);
        }
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
        let scratch = tempfile::Builder::new()
            .prefix(".install-")
            .tempdir_in(folder)
            .map_err(io_error("create a folder in", folder))?;
        let wheel = self.download(scratch.path(), progress)?;
        // Another process may have been faster.
        if library::check_file(self.target).is_err() {
            self.unpack(&wheel, folder, progress)?;
        }
        done(progress)
    }

    /// Has pip fetch the wheel below `scratch` and returns its file, its hash checked.
    fn download(
        &self,
        scratch: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, InstallError> {
        let pinned = scratch.join("requirements.txt");
        let line = format!("onnxruntime=={VERSION} --hash=sha256:{}\n", self.wheel.sha256);
        fs::write(&pinned, line).map_err(io_error("write", &pinned))?;
        let (wheels, said) = (scratch.join("wheels"), scratch.join("pip.log"));
        fs::create_dir(&wheels).map_err(io_error("create", &wheels))?;
        let log = File::create(&said).map_err(io_error("create", &said))?;
        let child = Command::new(self.python)
            .args(["-m", "pip", "download", "--no-deps", "--require-hashes", "--no-cache-dir"])
            .args(["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"])
            .args(["--abi", "cp311", "--disable-pip-version-check", "--no-input", "--platform"])
            .args([self.wheel.platform, "-r"])
            .arg(&pinned)
            .arg("-d")
            .arg(&wheels)
            .env("TMPDIR", scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => InstallError::NoPython { python: self.python.into() },
                _ => io_error("run", Path::new(self.python))(source),
            })?;
        let status = wait(child, || {
            progress(Progress::Downloading { bytes: bytes_below(scratch) });
        })
        .map_err(io_error("run", Path::new(self.python)))?;
        if !status.success() {
            let said = fs::read(&said).unwrap_or_default();
            return Err(self.explain(status, &String::from_utf8_lossy(&said)));
        }
        let wheel = fs::read_dir(&wheels)
            .map_err(io_error("read", &wheels))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(|path| path.extension().is_some_and(|end| end == "whl"))
            .ok_or_else(|| InstallError::Wheel {
                wheel: wheels.clone(),
                reason: "pip ended well but left no wheel".into(),
            })?;
        self.check_hash(&wheel)?;
        Ok(wheel)
    }

    fn check_hash(&self, wheel: &Path) -> Result<(), InstallError> {
        let mut hash = Sha256::new();
        let mut file = File::open(wheel).map_err(io_error("read", wheel))?;
        io::copy(&mut file, &mut HashWriter(&mut hash)).map_err(io_error("read", wheel))?;
        let got: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if got == self.wheel.sha256 {
            return Ok(());
        }
        let detail = format!("expected sha256 {}, got {got}", self.wheel.sha256);
        Err(InstallError::WrongHash { detail })
    }

    /// Makes one of our errors of what pip said on its way out.
    fn explain(&self, status: ExitStatus, said: &str) -> InstallError {
        let has = |needles: &[&str]| needles.iter().any(|needle| said.contains(needle));
        let lines: Vec<&str> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let detail = lines[lines.len().saturating_sub(6)..].join(" | ");
        if has(&["No module named pip"]) {
            return InstallError::NoPip { python: self.python.into() };
        }
        if has(&["DO NOT MATCH THE HASHES", "HashMismatch"]) {
            return InstallError::WrongHash { detail };
        }
        let unreachable = [
            "NewConnectionError",
            "ConnectTimeoutError",
            "ReadTimeoutError",
            "ConnectionResetError",
            "ProxyError",
            "SSLError",
            "name resolution",
            "No matching distribution found",
        ];
        if has(&unreachable) {
            return InstallError::Network { detail };
        }
        InstallError::Pip { status, detail }
    }

    /// Unpacks the library of `wheel` into `folder` under a name of its own, then renames it.
    fn unpack(
        &self,
        wheel: &Path,
        folder: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), InstallError> {
        let odd = |reason: String| InstallError::Wheel { wheel: wheel.to_owned(), reason };
        let file = File::open(wheel).map_err(io_error("read", wheel))?;
        let mut archive = zip::ZipArchive::new(file).map_err(|e| odd(e.to_string()))?;
        let name = archive
            .file_names()
            .filter_map(Result::ok)
            .find(|name| name.starts_with("onnxruntime/capi/libonnxruntime.so."))
            .map(Cow::into_owned)
            .ok_or_else(|| odd("it holds no onnxruntime/capi/libonnxruntime.so.*".into()))?;
        let entry = archive.by_name(&name).map_err(|e| odd(e.to_string()))?;
        let total = entry.size();
        if total > LARGEST_LIBRARY {
            return Err(odd(format!("{name} claims {total} bytes")));
        }
        let mut temporary = tempfile::Builder::new()
            .prefix(".unpack-")
            .tempfile_in(folder)
            .map_err(io_error("create a file in", folder))?;
        let mut entry = entry.take(total);
        let (mut bytes, mut buffer) = (0, vec![0; 1 << 18]);
        loop {
            progress(Progress::Unpacking { bytes, total });
            let len = entry.read(&mut buffer).map_err(|e| odd(e.to_string()))?;
            if len == 0 {
                break;
            }
            temporary.write_all(&buffer[..len]).map_err(io_error("write", temporary.path()))?;
            bytes += len as u64;
        }
        library::check_file(temporary.path())?;
        make_readable(temporary.as_file()).map_err(io_error("open up", temporary.path()))?;
        temporary.as_file().sync_all().map_err(io_error("write", temporary.path()))?;
        temporary
            .persist(self.target)
            .map_err(|error| io_error("replace", self.target)(error.error))?;
        // The name is durable only when its folder is; a file system that cannot do this has
        // still done the rename.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Temporary files are private to their owner; a cache may be shared by a group or the world.
fn make_readable(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Waits for a child and calls `tick` ten times a second until it ends.
///
/// # Errors
/// When the system does not tell how it ended.
pub fn wait(mut child: Child, mut tick: impl FnMut()) -> io::Result<ExitStatus> {
    let (tell, told) = channel::<()>();
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        drop(tell);
        status
    });
    while let Err(RecvTimeoutError::Timeout) = told.recv_timeout(Duration::from_millis(100)) {
        tick();
    }
    waiter.join().unwrap_or_else(|_| Err(io::Error::other("the thread that waits panicked")))
}

/// Sizes of all files below a folder; files that vanish meanwhile count nothing.
pub fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes_below(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests;
