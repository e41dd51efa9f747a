//! The search order, and files that must be refused by name instead of killing the process.

use super::*;
use crate::test_support;

fn touch(path: &Path) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, b"x").unwrap();
    path.to_owned()
}

#[test]
fn the_variable_wins_then_the_program_folder_then_the_cache() {
    let root = tempfile::tempdir().unwrap();
    let cache = touch(&root.path().join("cache").join(FILE_NAME));
    let beside = root.path().join("bin");
    let mut places =
        Places { named: None, beside: Some(beside.clone()), cache: Some(cache.clone()) };
    assert_eq!(places.find().unwrap(), cache);
    let near = touch(&beside.join(FILE_NAME));
    assert_eq!(places.find().unwrap(), near);
    let named = touch(&root.path().join("mine.so"));
    places.named = Some(named.clone().into_os_string());
    assert_eq!(places.find().unwrap(), named);
    places.named = Some(root.path().join("absent.so").into_os_string());
    assert!(matches!(places.find(), Err(LibraryError::VariableNamesNoFile(_))));
}

#[test]
fn not_found_names_every_place_and_the_remedy() {
    let places = Places { named: None, beside: Some("/a".into()), cache: Some("/b/c.so".into()) };
    let text = places.find().unwrap_err().to_string();
    assert!(text.contains("/a/libonnxruntime.so.1.32.0, /b/c.so"), "{text}");
    assert!(text.contains("midspan runtime install") && text.contains("ORT_DYLIB_PATH"), "{text}");
}

#[test]
fn damaged_files_are_refused_by_name() {
    let library = test_support::library();
    let whole = std::fs::read(&library).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.so");
    for len in [0, 3, 63, 4096, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let text = check_file(&path).unwrap_err().to_string();
        assert!(text.contains("cut.so is not a usable library"), "{len}: {text}");
    }
    std::fs::write(&path, &whole).unwrap();
    check_file(&path).unwrap();
    let mut foreign = whole[..4096].to_vec();
    foreign[18..20].copy_from_slice(&8u16.to_le_bytes());
    std::fs::write(&path, &foreign).unwrap();
    let text = check_file(&path).unwrap_err().to_string();
    assert!(text.contains("for ELF machine 8"), "{text}");
}

#[test]
fn a_process_keeps_to_one_library() {
    let library = test_support::library();
    open(&library).unwrap();
    open(&library).unwrap();
    assert_eq!(opened_path(), Some(library.as_path()));
    assert!(build_info().unwrap().contains("ORT Build Info"));
    let error = open(Path::new("/elsewhere.so")).unwrap_err();
    assert!(matches!(error, LibraryError::AnotherIsOpen { .. }), "{error}");
}
