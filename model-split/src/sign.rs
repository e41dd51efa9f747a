//! Who made a bundle: Ed25519 (RFC 8032) over the exact bytes of `manifest.json`, kept beside it in
//! `manifest.sig` as the 64 bytes of the signature and nothing else, so that OpenSSL makes and
//! checks the same file. The manifest names every blob by its SHA-256, so that its signature
//! covers all of them. Keys are PEM: PKCS #8 for the private one, SubjectPublicKeyInfo for the
//! other. Whom to trust is the operator's word; nothing here decides it, and nothing draws random
//! numbers.

use std::fmt;
use std::path::Path;

use ed25519_dalek::pkcs8::{
    DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, EncodePublicKey as _,
    KeypairBytes, spki::der::pem::LineEnding,
};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use crate::bundle::read_bounded;
use crate::digest::Digest;

/// Name of a signature's file.
pub const SIGNATURE: &str = "manifest.sig";
/// Bytes of a signature.
pub const LENGTH: usize = 64;
/// The largest file that is read for a key.
const LARGEST_KEY: u64 = 64 << 10;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file system said no.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Cause.
        source: std::io::Error,
    },
    /// No key of the wanted kind.
    #[error("{file} is no {wanted}: {reason}")]
    Form {
        /// The file.
        file: String,
        /// What should have been in it.
        wanted: &'static str,
        /// What the parser said.
        reason: String,
    },
}

/// Why a manifest counts as not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature.
    #[error("there is none, and only bundles signed by one of {trusted} are taken")]
    Missing {
        /// The keys that are trusted.
        trusted: String,
    },
    /// Not a signature's length.
    #[error("a signature has {LENGTH} bytes, this has {got}")]
    Length {
        /// Its bytes.
        got: usize,
    },
    /// No trusted key made it for this manifest.
    #[error(
        "it is not for this manifest by any of {trusted}: another key signed it, or the manifest \
         was changed after that"
    )]
    Refused {
        /// The keys that are trusted.
        trusted: String,
    },
}

/// A key that signs.
#[derive(Clone)]
pub struct PrivateKey(SigningKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.public().id())
    }
}

impl PrivateKey {
    /// The key of 32 random bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads a PEM file (PKCS #8, as `openssl genpkey -algorithm ed25519` writes it).
    ///
    /// # Errors
    /// When it cannot be read or holds no such key, naming the file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let (file, text) = read_text(path)?;
        let wanted = "unencrypted Ed25519 private key in PEM (PKCS #8)";
        SigningKey::from_pkcs8_pem(&text).map(Self).map_err(|error| KeyError::Form {
            file,
            wanted,
            reason: error.to_string(),
        })
    }

    /// As PEM. The public key is left out of it: OpenSSL 3.0 reads only that older form.
    ///
    /// # Errors
    /// Never in practice; the encoder's interface says that it may fail.
    pub fn to_pem(&self) -> Result<impl AsRef<str> + use<>, KeyError> {
        let pair = KeypairBytes { secret_key: self.0.to_bytes(), public_key: None };
        pair.to_pkcs8_pem(LineEnding::LF).map_err(|error| KeyError::Form {
            file: "the key".into(),
            wanted: "key that can be written",
            reason: error.to_string(),
        })
    }

    /// Its other half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// The signature of a manifest's bytes.
    pub fn sign(&self, manifest: &[u8]) -> [u8; LENGTH] {
        self.0.sign(manifest).to_bytes()
    }
}

/// A key that checks signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl PublicKey {
    /// Reads a PEM file (SubjectPublicKeyInfo, as `openssl pkey -pubout` writes it).
    ///
    /// # Errors
    /// When it cannot be read or holds no such key, naming the file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let (file, text) = read_text(path)?;
        let wanted = "Ed25519 public key in PEM";
        let key = VerifyingKey::from_public_key_pem(&text).map_err(|error| KeyError::Form {
            file: file.clone(),
            wanted,
            reason: error.to_string(),
        })?;
        // Under a key of small order, signatures of anything by anyone can be found.
        if key.is_weak() {
            return Err(KeyError::Form { file, wanted, reason: "it is of small order".into() });
        }
        Ok(Self(key))
    }

    /// As PEM.
    ///
    /// # Errors
    /// Never in practice; the encoder's interface says that it may fail.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        self.0.to_public_key_pem(LineEnding::LF).map_err(|error| KeyError::Form {
            file: "the key".into(),
            wanted: "key that can be written",
            reason: error.to_string(),
        })
    }

    /// SHA-256 over the key's DER form: what `openssl pkey -pubin -in KEY -outform DER | sha256sum`
    /// prints.
    pub fn id(&self) -> Digest {
        // Fixed by RFC 8410: the algorithm's identifier, then the key.
        const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
        Digest::of(&[&PREFIX[..], self.0.as_bytes()].concat())
    }
}

/// A public key that bundles may be signed with, and the file that it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    /// The file, as it was named.
    pub file: String,
    /// The key.
    pub key: PublicKey,
}

impl TrustedKey {
    /// Reads a public key's file; see [`PublicKey::read`].
    ///
    /// # Errors
    /// As [`PublicKey::read`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        Ok(Self { file: path.display().to_string(), key: PublicKey::read(path)? })
    }
}

fn read_text(path: &Path) -> Result<(String, String), KeyError> {
    let file = path.display().to_string();
    read_bounded(path, LARGEST_KEY)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
        .map(|text| (file.clone(), text))
        .map_err(|source| KeyError::Read { file, source })
}

/// Which of the trusted keys made this signature of the manifest's exact bytes.
///
/// # Errors
/// When there is no signature, or none of them did.
pub fn signer<'a>(
    manifest: &[u8],
    signature: Option<&[u8]>,
    trusted: &'a [TrustedKey],
) -> Result<&'a TrustedKey, SignatureError> {
    let names = || {
        let names: Vec<&str> = trusted.iter().map(|key| key.file.as_str()).collect();
        if names.is_empty() { "no key".into() } else { names.join(", ") }
    };
    let bytes = signature.ok_or_else(|| SignatureError::Missing { trusted: names() })?;
    let signature: [u8; LENGTH] =
        bytes.try_into().map_err(|_| SignatureError::Length { got: bytes.len() })?;
    let signature = Signature::from_bytes(&signature);
    trusted
        .iter()
        .find(|trusted| trusted.key.0.verify_strict(manifest, &signature).is_ok())
        .ok_or_else(|| SignatureError::Refused { trusted: names() })
}

#[cfg(test)]
mod tests;
