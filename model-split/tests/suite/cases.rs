//! The cases of a folder: a folder with `model.onnx` and its `test_data_set_N`, or an `.onnx` file
//! by itself, for which the suite has no inputs.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Case {
    /// Path below the root.
    pub(crate) name: String,
    pub(crate) model: PathBuf,
    /// Folder of the suite's own inputs.
    pub(crate) inputs: Option<PathBuf>,
}

/// All cases below a folder, by name.
pub(crate) fn find(root: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with("test_data_set_") {
                open.push(path);
            } else if name == "model.onnx" {
                let inputs = folder.join("test_data_set_0").is_dir().then(|| folder.clone());
                cases.push(Case { name: below(root, &folder), model: path, inputs });
            } else if name.ends_with(".onnx") {
                cases.push(Case { name: below(root, &path), model: path.clone(), inputs: None });
            }
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
