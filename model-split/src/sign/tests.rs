//! Keys and signatures of our own, of OpenSSL (committed: `tests/golden/openssl.*`, the signature
//! being of the text below), and exchanged with an installed OpenSSL.

use std::process::Command;

use super::*;

const SIGNED: &[u8] = b"a manifest";

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn trusted(seed: u8) -> TrustedKey {
    TrustedKey { file: format!("{seed}.pub.pem"), key: PrivateKey::from_seed([seed; 32]).public() }
}

fn verdict(manifest: &[u8], signature: Option<&[u8]>, keys: &[TrustedKey]) -> String {
    signer(manifest, signature, keys).map_or_else(|error| error.to_string(), |key| key.file.clone())
}

#[test]
fn the_key_that_signed_is_found_and_no_other() {
    let signature = PrivateKey::from_seed([2; 32]).sign(SIGNED);
    let keys = [trusted(1), trusted(2)];
    assert_eq!(verdict(SIGNED, Some(&signature), &keys), "2.pub.pem");
    let refused = verdict(SIGNED, Some(&signature), &keys[..1]);
    assert!(refused.contains("not for this manifest by any of 1.pub.pem"), "{refused}");
    assert!(verdict(b"another", Some(&signature), &keys).contains("1.pub.pem, 2.pub.pem"));
    for at in [0, 31, 32, 63] {
        let mut changed = signature;
        changed[at] ^= 1;
        assert!(verdict(SIGNED, Some(&changed), &keys).contains("not for this manifest"), "{at}");
    }
    let short = verdict(SIGNED, Some(&signature[..63]), &keys);
    assert_eq!(short, "a signature has 64 bytes, this has 63");
    assert!(verdict(SIGNED, None, &keys).contains("there is none"));
    assert!(verdict(SIGNED, Some(&signature), &[]).contains("no key"));
}

#[test]
fn pem_files_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let key = PrivateKey::from_seed([7; 32]);
    let (private, public) = (folder.path().join("key.pem"), folder.path().join("key.pub.pem"));
    std::fs::write(&private, key.to_pem().unwrap().as_ref()).unwrap();
    std::fs::write(&public, key.public().to_pem().unwrap()).unwrap();
    assert_eq!(PrivateKey::read(&private).unwrap().sign(SIGNED), key.sign(SIGNED));
    assert_eq!(TrustedKey::read(&public).unwrap().key, key.public());
    assert_eq!(format!("{key:?}"), format!("PrivateKey({})", key.public().id()));
    // Each in the place of the other, what is no PEM at all, and what is not there.
    let text = PublicKey::read(&private).unwrap_err().to_string();
    assert!(text.contains("key.pem is no Ed25519 public key in PEM"), "{text}");
    let text = PrivateKey::read(&public).unwrap_err().to_string();
    assert!(text.contains("key.pub.pem is no unencrypted Ed25519 private key"), "{text}");
    std::fs::write(&public, [0xff, 0xfe]).unwrap();
    let text = PublicKey::read(&public).unwrap_err().to_string();
    assert!(text.contains("cannot read") && text.contains("utf-8"), "{text}");
    assert!(PublicKey::read(&folder.path().join("none")).is_err());
}

#[test]
fn a_public_key_under_which_anything_is_signed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weak.pub.pem");
    // The identity of the curve.
    let weak = "-----BEGIN PUBLIC KEY-----\n\
                MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\
                -----END PUBLIC KEY-----\n";
    std::fs::write(&path, weak).unwrap();
    let text = PublicKey::read(&path).unwrap_err().to_string();
    assert!(text.ends_with("it is of small order"), "{text}");
}

#[test]
fn what_openssl_made_is_taken() {
    let key = PrivateKey::read(&golden("openssl.key.pem")).unwrap();
    let public = TrustedKey::read(&golden("openssl.pub.pem")).unwrap();
    let signature = std::fs::read(golden("openssl.sig")).unwrap();
    assert_eq!(key.public(), public.key);
    assert_eq!(key.sign(SIGNED).as_slice(), signature);
    assert!(signer(SIGNED, Some(&signature), std::slice::from_ref(&public)).is_ok());
    let id = "7210d8d5beb821020c77e431aea5856fcb552d5ea24d9ae99860b14f1855971f";
    assert_eq!(public.key.id().to_string(), id);
}

#[test]
fn openssl_takes_what_is_made_here() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let openssl = |arguments: &[&str]| {
        Command::new("openssl").args(arguments).current_dir(folder.path()).output()
    };
    if openssl(&["version"]).is_err() {
        return eprintln!("SKIPPED: no openssl to exchange keys with");
    }
    let key = PrivateKey::from_seed([9; 32]);
    std::fs::write(file("key.pem"), key.to_pem().unwrap().as_ref()).unwrap();
    std::fs::write(file("key.pub.pem"), key.public().to_pem().unwrap()).unwrap();
    std::fs::write(file("manifest.json"), SIGNED).unwrap();
    std::fs::write(file("manifest.sig"), key.sign(SIGNED)).unwrap();
    let verify =
        "pkeyutl -verify -pubin -inkey key.pub.pem -rawin -in manifest.json -sigfile manifest.sig";
    let sign = "pkeyutl -sign -inkey key.pem -rawin -in manifest.json -out theirs.sig";
    for command in [verify, sign] {
        let output = openssl(&command.split(' ').collect::<Vec<_>>()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "openssl {command}: {said}");
    }
    assert_eq!(std::fs::read(file("theirs.sig")).unwrap(), key.sign(SIGNED));
}
