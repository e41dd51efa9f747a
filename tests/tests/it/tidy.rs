//! What holds of every file that is text: the opening and length of sources, words that are never
//! left in, and pages that are rendered from the code.

use std::{
    fs,
    path::{Path, PathBuf},
};

use system_tests::{metrics, repo};

const MOST_LINES: usize = 500;

/// Words that belong into nothing published, in pieces so that this file does not hold them.
const BANNED: [(&str, &str); 7] = [
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/Use", "rs/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("../sha", "red"), "a folder outside of the repository"),
    (concat!("TO", "DO"), "unfinished work; finish it or say what is left out and why"),
    (concat!("FIX", "ME"), "unfinished work; finish it or say what is left out and why"),
];

/// Generated, or taken over from others as it is.
const TAKEN_OVER: [&str; 1] = ["model-split/src/onnx/onnx-ml.proto"];

/// Every file that is text, and its text.
fn texts() -> Vec<(PathBuf, String)> {
    let files = repo::files().unwrap().into_iter();
    let files = files.filter(|path| !TAKEN_OVER.iter().any(|taken| Path::new(taken) == path));
    let read = |path: PathBuf| {
        let bytes = fs::read(repo::root().join(&path)).unwrap();
        String::from_utf8(bytes).ok().map(|text| (path, text))
    };
    files.filter_map(read).collect()
}

/// A word of letters stands alone; a path begins where no name does.
fn holds(line: &str, banned: &str) -> bool {
    let letter = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    line.match_indices(banned).any(|(at, _)| {
        let (before, after) =
            (line.as_bytes()[..at].last(), line.as_bytes().get(at + banned.len()));
        let path = banned.ends_with('/');
        let name = letter(before) || before.is_some_and(|b| b"-.}".contains(b));
        !(name && banned.starts_with('/')) && (path || !letter(after))
    })
}

#[test]
fn sources_open_with_their_purpose_and_stay_short() {
    let mut wrong = Vec::new();
    let texts = texts();
    let sources = texts.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "rs"));
    for (path, text) in sources {
        if !text.starts_with("//! ") {
            wrong.push(format!(
                "{}:1: opens without //! and what it decides or does",
                path.display()
            ));
        }
        let lines = text.lines().count();
        if lines > MOST_LINES {
            wrong.push(format!("{}: {lines} lines; at most {MOST_LINES}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_private_or_unfinished_is_left_in() {
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        for (number, line) in (1..).zip(text.lines()) {
            for (banned, why) in BANNED {
                if holds(line, banned) {
                    wrong.push(format!("{}:{number}: {banned}: {why}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn banned_words_are_told_from_others() {
    let [path, todo] = [BANNED[3].0, BANNED[5].0];
    for (line, banned, expected) in [
        (format!("see {path}main"), path, true),
        (format!("\"{path}\""), path, true),
        (format!("https://example.org/net{path}x"), path, false),
        (format!("// {todo}: later"), todo, true),
        (format!("{todo}_LIST"), todo, false),
    ] {
        assert_eq!(holds(&line, banned), expected, "{line}");
    }
}

#[test]
fn the_openapi_document_is_what_is_served() {
    let document = midspan_protocol::openapi::build();
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    repo::check_generated(Path::new("docs/openapi.json"), &text).unwrap();
}

#[test]
fn the_metrics_page_is_the_enum() {
    repo::check_generated(Path::new("docs/METRICS.md"), &metrics::page()).unwrap();
}
