//! Finds ONNX Runtime's shared library and opens it, once per process; afterwards `ort` works.
//! The only module with unsafe code: handing the library's function table to `ort`, and what `ort`
//! leaves out ([`strings`], [`shapes`]). It must not download anything (see
//! [`mod@crate::install`]) and never picks up a system library unasked.
#![allow(unsafe_code, reason = "opening a shared library and calling functions of its table")]

use std::env;
use std::ffi::{OsString, c_int};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::environment::Environment;

pub(crate) mod shapes;
pub(crate) mod strings;

/// Version of the library that is installed and searched for.
pub const VERSION: &str = "1.32.0";
/// File name of the library.
pub const FILE_NAME: &str = "libonnxruntime.so.1.32.0";
/// Environment variable that names the library and overrides every other place.
pub const PATH_VARIABLE: &str = "ORT_DYLIB_PATH";

/// Why there is no usable library.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// None of the places has it.
    #[error(
        "ONNX Runtime {VERSION} not found in: {}; run `midspan runtime install`, or name the \
         library in {PATH_VARIABLE}", list(.searched)
    )]
    NotFound {
        /// Files that were looked for, in order.
        searched: Vec<PathBuf>,
    },
    /// The environment variable names a file that does not exist.
    #[error("{PATH_VARIABLE} names {}, which is not a file", .0.display())]
    VariableNamesNoFile(PathBuf),
    /// Neither `XDG_CACHE_HOME` nor `HOME` says where a cache may be.
    #[error("no cache folder: neither XDG_CACHE_HOME nor HOME is set to an absolute path")]
    NoCacheFolder,
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is cut short, is for another machine or is no library at all.
    #[error("{} is not a usable library: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The dynamic linker refused the file.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: libloading::Error,
    },
    /// The library does not offer the interface that this program was built for.
    #[error(
        "{} is too old: it does not offer ONNX Runtime API {wanted}; version {VERSION} does",
        .path.display()
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// API version that is needed.
        wanted: u32,
    },
    /// A process can use one library only.
    #[error("cannot open {}: this process already uses {}", .wanted.display(), .open.display())]
    AnotherIsOpen {
        /// The file asked for.
        wanted: PathBuf,
        /// The file in use.
        open: PathBuf,
    },
    /// The library opened but would not start.
    #[error("{} does not start: {reason}", .path.display())]
    Start {
        /// The file.
        path: PathBuf,
        /// What the library said.
        reason: String,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// Where to look; read from the process's surroundings by [`Places::of_process`].
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Value of [`PATH_VARIABLE`].
    pub named: Option<OsString>,
    /// Folder of the running program.
    pub beside: Option<PathBuf>,
    /// The file in the user's cache.
    pub cache: Option<PathBuf>,
}

impl Places {
    /// The places that apply to this process.
    pub fn of_process() -> Self {
        let program = env::current_exe().ok();
        Self {
            named: env::var_os(PATH_VARIABLE).filter(|value| !value.is_empty()),
            beside: program.and_then(|path| path.parent().map(Path::to_owned)),
            cache: cache_path().ok(),
        }
    }

    /// The first place that has the library: the variable, beside the program, the cache.
    ///
    /// # Errors
    /// When none has it, naming all that were tried; a variable that names no file is an error of
    /// its own and never falls through to the next place.
    pub fn find(&self) -> Result<PathBuf, LibraryError> {
        if let Some(named) = &self.named {
            let path = PathBuf::from(named);
            return if path.is_file() {
                Ok(path)
            } else {
                Err(LibraryError::VariableNamesNoFile(path))
            };
        }
        let beside = self.beside.as_ref().map(|folder| folder.join(FILE_NAME));
        let searched: Vec<PathBuf> = beside.into_iter().chain(self.cache.clone()).collect();
        match searched.iter().find(|path| path.is_file()) {
            Some(path) => Ok(path.clone()),
            None => Err(LibraryError::NotFound { searched }),
        }
    }
}

/// The library's file: [`PATH_VARIABLE`], else beside the program, else the user's cache.
///
/// # Errors
/// As [`Places::find`].
pub fn find() -> Result<PathBuf, LibraryError> {
    Places::of_process().find()
}

/// Where the library is installed: `midspan/onnxruntime-1.32.0/` in the user's cache.
///
/// # Errors
/// When the process has no cache folder.
pub fn cache_path() -> Result<PathBuf, LibraryError> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .ok_or(LibraryError::NoCacheFolder)?;
    Ok(cache.join("midspan").join(format!("onnxruntime-{VERSION}")).join(FILE_NAME))
}

struct Opened {
    path: PathBuf,
    environment: Environment,
}

static OPENED: OnceLock<Opened> = OnceLock::new();
static OPENING: Mutex<()> = Mutex::new(());

/// Opens the library at `path` for the rest of the process. Opening the same file again is
/// harmless.
///
/// # Errors
/// When the file is damaged, refused or too old, or when another library is in use already.
pub fn open(path: &Path) -> Result<(), LibraryError> {
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(opened) = OPENED.get() {
        return if opened.path == path {
            Ok(())
        } else {
            let (wanted, open) = (path.to_owned(), opened.path.clone());
            Err(LibraryError::AnotherIsOpen { wanted, open })
        };
    }
    check_file(path)?;
    forbid_telemetry();
    let api = with_known_types(without_leak(load(path)?));
    ort::set_api(api);
    let environment =
        ort::init().with_name("midspan").with_telemetry(false).build().map_err(|error| {
            LibraryError::Start { path: path.to_owned(), reason: error.to_string() }
        })?;
    OPENED.get_or_init(|| Opened { path: path.to_owned(), environment });
    Ok(())
}

/// Keeps ONNX Runtime from reporting to its makers. The wheel's library sends events over the
/// network and keeps a device id in the user's cache unless this variable is set before it is
/// opened; the option of its API alone does not stop that. Call it first thing in `main`; [`open`]
/// calls it too.
pub fn forbid_telemetry() {
    const VARIABLE: &str = "ORT_DISABLE_TELEMETRY";
    if env::var_os(VARIABLE).is_some_and(|value| value == "1") {
        return;
    }
    // SAFETY: writing the environment races only with code that reads it without the standard
    // library's lock, that is C code in another thread. The program calls this before it starts
    // any; a test that does not has no such code running while it opens the library.
    unsafe { env::set_var(VARIABLE, "1") };
}

type GetTypeInfo = unsafe extern "system" fn(
    *const ort::sys::OrtValue,
    *mut *mut ort::sys::OrtTypeInfo,
) -> ort::sys::OrtStatusPtr;
type IsTensor =
    unsafe extern "system" fn(*const ort::sys::OrtValue, *mut c_int) -> ort::sys::OrtStatusPtr;

static ORIGINAL: OnceLock<(GetTypeInfo, IsTensor)> = OnceLock::new();

/// `ort` 2.0.0-rc.14 asks for the type info of every output, looks at it only when the value is no
/// tensor, and releases it only then: about 320 bytes are lost for each output of each run. The
/// table that it is given therefore answers for tensors with an address that nobody looks at.
/// A test counts what runs cost; drop this when `ort` is updated.
fn without_leak(mut api: ort::sys::OrtApi) -> ort::sys::OrtApi {
    ORIGINAL.get_or_init(|| (api.GetTypeInfo, api.IsTensor));
    api.GetTypeInfo = type_info_of_others;
    api
}

unsafe extern "system" fn type_info_of_others(
    value: *const ort::sys::OrtValue,
    out: *mut *mut ort::sys::OrtTypeInfo,
) -> ort::sys::OrtStatusPtr {
    let Some((original, is_tensor)) = ORIGINAL.get() else { return Default::default() };
    let mut tensor: c_int = 0;
    // SAFETY: `value` is a value of the open library, as for the function this stands in for.
    let status = unsafe { is_tensor(value, &mut tensor) };
    if status.0.is_null() && tensor != 0 {
        // SAFETY: `out` may be written, as for the function this stands in for. The address is
        // never read: `ort` drops it without a look when the value is a tensor.
        unsafe { *out = std::ptr::NonNull::dangling().as_ptr() };
        return status;
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { original(value, out) }
}

type GetElementType = unsafe extern "system" fn(
    *const ort::sys::OrtTensorTypeAndShapeInfo,
    *mut ort::sys::ONNXTensorElementDataType,
) -> ort::sys::OrtStatusPtr;

static ELEMENT_TYPE: OnceLock<GetElementType> = OnceLock::new();

/// `ort` 2.0.0-rc.14 takes element types as an enum that ends at INT4, and the library has more
/// (integers of 2 bits, FLOAT4E2M1, FLOAT8E8M0): a model that reads or answers one of those gave
/// the enum a value that it does not have, and the process died. They are told as undefined, which
/// no session of ours takes. A test loads such a model; drop this when `ort` is updated.
fn with_known_types(mut api: ort::sys::OrtApi) -> ort::sys::OrtApi {
    ELEMENT_TYPE.get_or_init(|| api.GetTensorElementType);
    api.GetTensorElementType = known_element_type;
    api
}

unsafe extern "system" fn known_element_type(
    info: *const ort::sys::OrtTensorTypeAndShapeInfo,
    out: *mut ort::sys::ONNXTensorElementDataType,
) -> ort::sys::OrtStatusPtr {
    use ort::sys::ONNXTensorElementDataType as Type;
    const LAST: c_int = Type::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 as c_int;
    const UNKNOWN: c_int = Type::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED as c_int;
    let Some(original) = ELEMENT_TYPE.get() else { return Default::default() };
    let mut number: c_int = UNKNOWN;
    // SAFETY: `info` is handed on as it came; the library writes an `int`, which is what the enum
    // is represented by.
    let status = unsafe { original(info, (&raw mut number).cast()) };
    let known = if (UNKNOWN..=LAST).contains(&number) { number } else { UNKNOWN };
    // SAFETY: `out` may be written, as for the function this stands in for, and the enum has a
    // member for every number from its first to its last.
    unsafe { out.cast::<c_int>().write(known) };
    status
}

/// The file in use, once one is open.
pub fn opened_path() -> Option<&'static Path> {
    OPENED.get().map(|opened| opened.path.as_path())
}

/// What the library in use says of itself (version, build), once one is open.
pub fn build_info() -> Option<&'static str> {
    OPENED.get().map(|_| ort::info())
}

/// The environment of the open library; finds and opens one if nobody did.
pub(crate) fn environment() -> Result<&'static Environment, LibraryError> {
    if OPENED.get().is_none() {
        let path = find()?;
        // Someone else may win the race with another file: then that one is used.
        match open(&path) {
            Ok(()) | Err(LibraryError::AnotherIsOpen { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    match OPENED.get() {
        Some(opened) => Ok(&opened.environment),
        None => Err(LibraryError::NotFound { searched: vec![] }),
    }
}

fn load(path: &Path) -> Result<ort::sys::OrtApi, LibraryError> {
    let fail = |source| LibraryError::Open { path: path.to_owned(), source };
    // SAFETY: the file is a whole ELF library for this machine that the operator chose or whose
    // hash was checked; its initialisers are those of ONNX Runtime.
    let library = unsafe { libloading::Library::new(path) }.map_err(fail)?;
    // SAFETY: this is the declared C signature of the symbol.
    let base = unsafe {
        library.get::<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase>(b"OrtGetApiBase")
    }
    .map_err(fail)?;
    // SAFETY: the function takes nothing and returns a pointer to a static, or null.
    let base = unsafe { base() };
    let wanted = ort::sys::ORT_API_VERSION;
    let too_old = || LibraryError::TooOld { path: path.to_owned(), wanted };
    if base.is_null() {
        return Err(too_old());
    }
    // SAFETY: `base` is not null, and `GetApi` may be called with any version; it returns null
    // for one that the library does not have.
    let api = unsafe { ((*base).GetApi)(wanted) };
    if api.is_null() {
        return Err(too_old());
    }
    // SAFETY: the library offers this version, so that its table starts with all the members of
    // `OrtApi`, and the table is static data of the library.
    let api = unsafe { std::ptr::read(api) };
    // The table's functions live in the library: it must never be unloaded.
    std::mem::forget(library);
    Ok(api)
}

/// Refuses a file whose ELF headers point past its end, or that is for another machine: the
/// dynamic linker would map it and the process would die by a signal at first use.
pub(crate) fn check_file(path: &Path) -> Result<(), LibraryError> {
    let read_error = |source| LibraryError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(read_error)?;
    let len = file.metadata().map_err(read_error)?.len();
    let reason = if cfg!(target_os = "linux") && cfg!(target_pointer_width = "64") {
        elf_fault(&mut file, len).map_err(read_error)?
    } else {
        None
    };
    match reason {
        Some(reason) => Err(LibraryError::Damaged { path: path.to_owned(), reason }),
        None => Ok(()),
    }
}

/// What is wrong with a 64-bit little-endian ELF library of `len` bytes, if anything.
fn elf_fault(file: &mut (impl Read + Seek), len: u64) -> io::Result<Option<String>> {
    let mut header = Vec::with_capacity(64);
    file.by_ref().take(64).read_to_end(&mut header)?;
    let u16_at = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    if header.len() < 64 || header[..4] != *b"\x7fELF" {
        return Ok(Some(format!("no ELF header in its {len} bytes")));
    }
    if header[4] != 2 || header[5] != 1 {
        return Ok(Some("not a 64-bit little-endian library".into()));
    }
    let machine = u16_at(18);
    let wanted = match env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        _ => machine,
    };
    if machine != wanted {
        return Ok(Some(format!(
            "it is for ELF machine {machine}; this one ({}) is {wanted}",
            env::consts::ARCH
        )));
    }
    let (sections, section_size, section_count) = (u64_at(&header, 40), u16_at(58), u16_at(60));
    let (segments, segment_size, segment_count) = (u64_at(&header, 32), u16_at(54), u16_at(56));
    let mut end = sections.saturating_add(section_size * section_count);
    file.seek(SeekFrom::Start(segments))?;
    let mut table = Vec::new();
    file.take(segment_size * segment_count).read_to_end(&mut table)?;
    for segment in table.chunks_exact(usize::try_from(segment_size).unwrap_or(56).max(56)) {
        end = end.max(u64_at(segment, 8).saturating_add(u64_at(segment, 32)));
    }
    Ok((end > len).then(|| format!("it is cut short: {len} bytes, its headers need {end}")))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests;
