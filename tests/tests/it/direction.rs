//! Which crate may depend on which: the table of the architecture, held against `cargo metadata`.
//! A new crate or a new edge is a decision, made here first.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

/// Every crate of the workspace and the crates of the workspace that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("midspan-protocol", &[]),
    ("midspan-router-core", &[]),
    ("midspan-runtime", &[]),
    ("midspan-split", &["midspan-runtime"]),
    ("midspan-net", &["midspan-protocol"]),
    ("midspan-router", &["midspan-net", "midspan-protocol", "midspan-router-core"]),
    (
        "midspan-node",
        &[
            "midspan-net",
            "midspan-protocol",
            "midspan-router-core",
            "midspan-runtime",
            "midspan-split",
        ],
    ),
    ("midspan-load", &["midspan-net", "midspan-protocol", "midspan-router-core", "midspan-split"]),
    ("midspan", LIBRARIES),
    ("system-tests", LIBRARIES),
];

const LIBRARIES: &[&str] = &[
    "midspan-load",
    "midspan-net",
    "midspan-node",
    "midspan-protocol",
    "midspan-router",
    "midspan-router-core",
    "midspan-runtime",
    "midspan-split",
];

/// The crate that opens ONNX Runtime, and the crates that do it for it.
const RUNTIME: &str = "midspan-runtime";
const ORT: [&str; 3] = ["ort", "ort-sys", "ort-tract"];

/// All that the core may use of others.
const CORE_EXTERNAL: [&str; 1] = ["libm"];

/// Metadata with the resolved graph for this machine, default features.
fn metadata() -> Metadata {
    let version = std::process::Command::new(env!("CARGO")).args(["-vV"]).output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let mut command = MetadataCommand::new();
    command.current_dir(system_tests::repo::root());
    // Without the filter, packages of other systems would have to be fetched.
    command.other_options(vec!["--filter-platform".into(), host.into()]);
    command.exec().unwrap()
}

/// Names of what `package` needs to be built and run.
fn needs(package: &Package) -> BTreeSet<&str> {
    let dependencies = package.dependencies.iter();
    dependencies
        .filter(|dependency| {
            matches!(dependency.kind, DependencyKind::Normal | DependencyKind::Build)
        })
        .map(|dependency| dependency.name.as_str())
        .collect()
}

#[test]
fn crates_depend_only_along_the_table() {
    let metadata = metadata();
    let table: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let members = metadata.workspace_packages();
    let names: BTreeSet<&str> = members.iter().map(|package| package.name.as_str()).collect();
    let listed: BTreeSet<&str> = table.keys().copied().collect();
    assert_eq!(names, listed, "the workspace's crates, and those of the table");
    let mut wrong = Vec::new();
    for package in &members {
        let name = package.name.as_str();
        for needed in needs(package).intersection(&names) {
            if !table[name].contains(needed) {
                wrong.push(format!("{name} must not depend on {needed}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_runtime_crate_names_ort() {
    let metadata = metadata();
    let mut naming = BTreeSet::new();
    for package in metadata.workspace_packages() {
        // Tests and examples too: a second opener of the library is one too many.
        let all = package.dependencies.iter();
        if all.into_iter().any(|dependency| ORT.contains(&dependency.name.as_str())) {
            naming.insert(package.name.as_str());
        }
    }
    assert_eq!(naming, BTreeSet::from([RUNTIME]));
}

#[test]
fn the_router_never_links_onnx_runtime() {
    let metadata = metadata();
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let root = |name: &str| {
        let all = metadata.workspace_packages();
        all.iter().find(|package| package.name.as_str() == name).unwrap().id.clone()
    };
    let reach = |from: PackageId| {
        let (mut seen, mut pending) = (BTreeSet::new(), vec![from]);
        while let Some(id) = pending.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let linked = nodes[&id].deps.iter().filter(|dependency| {
                let mut kinds = dependency.dep_kinds.iter();
                kinds.any(|kind| kind.kind != DependencyKind::Development)
            });
            pending.extend(linked.map(|dependency| dependency.pkg.clone()));
        }
        seen.iter().map(|id| metadata[id].name.to_string()).collect::<BTreeSet<_>>()
    };
    let node = reach(root("midspan-node"));
    assert!(node.contains(RUNTIME) && node.contains("ort"), "the graph is not what this reads");
    let router = reach(root("midspan-router"));
    let reached: Vec<_> =
        router.iter().filter(|name| *name == RUNTIME || ORT.contains(&name.as_str())).collect();
    assert!(reached.is_empty(), "midspan-router reaches {reached:?}");
}

#[test]
fn the_core_stays_pure() {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    let core =
        members.iter().find(|package| package.name.as_str() == "midspan-router-core").unwrap();
    let extra: Vec<_> =
        needs(core).into_iter().filter(|name| !CORE_EXTERNAL.contains(name)).collect();
    assert!(extra.is_empty(), "midspan-router-core must not depend on {extra:?}");
    let lib = system_tests::repo::root().join("router/core/src/lib.rs");
    let text = std::fs::read_to_string(lib).unwrap();
    assert!(text.lines().any(|line| line == "#![no_std]"), "the core's lib.rs is not no_std");
}
