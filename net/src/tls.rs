//! TLS on a port: a certificate chain and its key from PEM files, re-read when they change or on
//! SIGHUP, HTTP/2 and HTTP/1.1 by ALPN. Files that cannot be used are refused at the start and
//! leave the old pair in place later. Whether a certificate has expired, or fits a name, is for
//! clients to judge; clients show none.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};

use crate::{Tasks, config::Problem, units::Span};

/// Largest PEM file that is read; chains have a few kilobytes.
const MAX_FILE: u64 = 1 << 20;

/// TLS of a port; without this table the port speaks plain HTTP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTls {
    /// PEM file of the certificate, followed by those of its issuers. Relative to this file's
    /// folder.
    pub certificate: PathBuf,
    /// PEM file of the certificate's private key.
    pub key: PathBuf,
    /// How often both files are looked at; SIGHUP looks at once. A pair that cannot be used is
    /// logged, and the one before stays.
    #[serde(default = "reload")]
    #[schemars(default = "reload")]
    pub reload: Span,
}

fn reload() -> Span {
    Span::millis(10_000)
}

impl RawTls {
    /// Reads the files. `base` is the folder that relative paths start from, `key` this table's
    /// path in the configuration file.
    ///
    /// # Errors
    /// The key whose file cannot be used, with the cause.
    pub fn load(&self, base: &Path, key: &str) -> Result<Arc<Certificates>, Problem> {
        if self.reload.0 < Duration::from_millis(100) {
            return Err(Problem::new(format!("{key}.reload"), "must be at least 100ms"));
        }
        let (certificate, private) = (base.join(&self.certificate), base.join(&self.key));
        Certificates::load(certificate, private, self.reload.0).map(Arc::new).map_err(|error| {
            let at = if error.is_about_the_key() { "key" } else { "certificate" };
            Problem::new(format!("{key}.{at}"), error.to_string())
        })
    }
}

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {file}: {cause}", file = file.display())]
    Read {
        /// Its path.
        file: PathBuf,
        /// The system's reason.
        cause: io::Error,
        /// Whether it is the key's.
        key: bool,
    },
    /// The file holds nothing of what it should.
    #[error("{file} holds no {what} in PEM form: {cause}", file = file.display())]
    Pem {
        /// Its path.
        file: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What the parser says.
        cause: String,
        /// Whether it is the key's.
        key: bool,
    },
    /// Both were read, but do not belong together or cannot be used.
    #[error("{key} is no key for {certificate}: {cause}", key = key.display(), certificate = certificate.display())]
    Pair {
        /// Path of the chain.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// What the library says.
        cause: rustls::Error,
    },
    /// The library has no protocol version in common with itself.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

impl TlsError {
    fn is_about_the_key(&self) -> bool {
        match self {
            Self::Read { key, .. } | Self::Pem { key, .. } => *key,
            Self::Pair { .. } => true,
            Self::Setup(_) => false,
        }
    }
}

/// A port's certificate, replaced under running connections: those keep what they began with.
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    every: Duration,
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
    /// The files as they were last looked at, usable or not.
    seen: Mutex<Option<Seen>>,
}

/// What tells one content of the two files from another: both files' device, inode, length and
/// time of change. Links are followed, so that swapping a link's target is seen too.
type Seen = [[i128; 4]; 2];

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        f.debug_struct("Certificates")
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads a chain and its key. They are looked at again `every` so often, see
    /// [`Certificates::watch`].
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(certificate: PathBuf, key: PathBuf, every: Duration) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let seen = seen(&certificate, &key);
        let pair = pair(&certificate, &key, &provider)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(pair)));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let seen = Mutex::new(seen.ok());
        Ok(Self { certificate, key, every, provider, current, config, seen })
    }

    /// Reads the files again; new connections then use them. On an error the pair before stays.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn reload(&self) -> Result<(), TlsError> {
        // Looked at before reading: a change in between is seen the next time.
        let seen = seen(&self.certificate, &self.key);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen.ok();
        let pair = pair(&self.certificate, &self.key, &self.provider)?;
        self.current.0.store(Arc::new(pair));
        Ok(())
    }

    /// Reloads whenever the files change, and on SIGHUP, until the drain starts. Call it once.
    pub fn watch(self: &Arc<Self>, tasks: &Tasks) {
        use tokio::signal::unix::{SignalKind, signal};
        let this = Arc::clone(self);
        tasks.spawn_until_drain(async move {
            let mut hangup = signal(SignalKind::hangup())
                .inspect_err(|error| tracing::warn!(%error, "SIGHUP will not reload certificates"))
                .ok();
            let first = tokio::time::Instant::now() + this.every;
            let mut ticks = tokio::time::interval_at(first, this.every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                let asked = tokio::select! {
                    biased;
                    () = async {
                        match &mut hangup {
                            Some(hangup) => { hangup.recv().await; }
                            None => std::future::pending().await,
                        }
                    } => true,
                    _ = ticks.tick() => false,
                };
                // Files may lie on a network.
                let looking = Arc::clone(&this);
                let looked = tokio::task::spawn_blocking(move || looking.look(asked)).await;
                if let Err(error) = looked {
                    tracing::warn!(%error, "certificates were not looked at");
                }
            }
        });
    }

    /// Reloads if the files changed since they were last looked at, or if `asked` to.
    fn look(&self, asked: bool) {
        let now = seen(&self.certificate, &self.key).ok();
        if !asked && now == *self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        let certificate = self.certificate.display();
        match self.reload() {
            Ok(()) => tracing::info!(%certificate, "certificate reloaded"),
            Err(error) => tracing::error!(%error, "certificate not reloaded, the old one stays"),
        }
    }

    /// Accepts handshakes.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

fn seen(certificate: &Path, key: &Path) -> io::Result<Seen> {
    let of = |path: &Path| {
        let meta = std::fs::metadata(path)?;
        let time = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        io::Result::Ok([meta.dev().into(), meta.ino().into(), meta.len().into(), time])
    };
    Ok([of(certificate)?, of(key)?])
}

fn pair(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(certificate, false)?)
        .collect::<Result<_, _>>()
        .map_err(|cause| no_certificate(certificate, cause.to_string()))?;
    if chain.is_empty() {
        return Err(no_certificate(certificate, "there is no such section".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key, true)?).map_err(|cause| {
        let (file, cause) = (key.to_owned(), cause.to_string());
        TlsError::Pem { file, what: "private key", cause, key: true }
    })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|cause| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        cause,
    })
}

fn no_certificate(file: &Path, cause: String) -> TlsError {
    TlsError::Pem { file: file.to_owned(), what: "certificate", cause, key: false }
}

/// Reads a regular file of a sensible size; a device may have no end.
fn read(path: &Path, key: bool) -> Result<Vec<u8>, TlsError> {
    let bounded = || {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        Ok(bytes)
    };
    bounded().map_err(|cause| TlsError::Read { file: path.to_owned(), cause, key })
}

#[cfg(test)]
mod tests;
