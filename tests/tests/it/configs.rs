//! Configuration files: those that ship load and fit together, bad ones say what is wrong.

use std::{collections::BTreeSet, fs, path::PathBuf};

use expect_test::{Expect, expect};
use midspan_net::config::{Validate, load};
use system_tests::repo;

type Router = midspan_router::RawConfig;
type Node = midspan_node::RawConfig;

/// Files that must not load.
const BAD: &str = "tests/tests/fixtures/config";

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(repo::root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn shipped(name: &str) -> PathBuf {
    repo::root().join("configs").join(name)
}

fn node(name: &str) -> midspan_node::Config {
    load::<Node>(&shipped(name)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_shipped_file_loads() {
    let names = names("configs");
    assert!(names.contains("router.toml") && names.len() > 1, "{names:?}");
    for name in names {
        if name == "router.toml" {
            load::<Router>(&shipped(&name)).unwrap_or_else(|error| panic!("{error}"));
        } else {
            node(&name);
        }
    }
}

#[test]
fn the_shipped_fleet_fits_together() {
    let router = load::<Router>(&shipped("router.toml")).unwrap();
    let (edges, cloud) = ([node("edge-a.toml"), node("edge-b.toml")], node("cloud.toml"));
    let listed: Vec<_> =
        router.nodes.iter().map(|node| (node.name.clone(), node.authority.to_string())).collect();
    let there: Vec<_> =
        edges.iter().map(|edge| (edge.name.clone(), edge.listen.to_string())).collect();
    assert_eq!(listed, there, "the router's nodes are the edges");
    for edge in &edges {
        let clouds: Vec<_> = edge.clouds.iter().map(|cloud| cloud.authority.to_string()).collect();
        assert_eq!(clouds, [cloud.listen.to_string()], "{}'s clouds", edge.name);
        assert_eq!(edge.models, cloud.models, "{} and the cloud have the same models", edge.name);
    }
    let nodes = edges.iter().chain([&cloud]);
    let mut ports: Vec<_> = nodes.flat_map(|n| [Some(n.listen), n.admin]).flatten().collect();
    ports.extend([router.apps, router.admin]);
    assert_eq!(ports.len(), ports.iter().collect::<BTreeSet<_>>().len(), "a port is used twice");
    assert!(ports.iter().all(|port| port.ip().is_loopback()), "a shipped port is open to others");
}

/// Bad files and what is said of each. `UPDATE_EXPECT=1` writes the messages anew.
fn bad_node_files() -> Vec<(&'static str, Expect)> {
    vec![
        (
            "node-cloud-without-port.toml",
            expect![[
                r#"node-cloud-without-port.toml:7: cloud[0].address = "127.0.0.1": not host:port"#
            ]],
        ),
        (
            "node-model-twice-sourced.toml",
            expect![
                "node-model-twice-sourced.toml:3: model[0]: has both bundle and onnx; keep one"
            ],
        ),
        (
            "node-named-bundle.toml",
            expect![[
                r#"node-named-bundle.toml:5: model[0].name = "mine": a bundle has its own name; remove this"#
            ]],
        ),
        (
            "node-no-queue.toml",
            expect!["node-no-queue.toml:4: limits.queue = 0: must be at least 1"],
        ),
        (
            "node-offloading-cloud.toml",
            expect![[
                r#"node-offloading-cloud.toml:7: cloud: a cloud does not offload; remove it or set role = "edge""#
            ]],
        ),
        (
            "node-tls-without-key.toml",
            expect!["node-tls-without-key.toml:3: listen.tls: missing field `key`"],
        ),
        (
            "node-unknown-key.toml",
            expect![
                "node-unknown-key.toml:2: worker: unknown field `worker`, expected one of `name`, `role`, `region`, `workers`, `model_control`, `listen`, `trusted_keys`, `limits`, `offload`, `model`, `cloud`"
            ],
        ),
    ]
}

fn bad_router_files() -> Vec<(&'static str, Expect)> {
    vec![
        (
            "router-bad-port.toml",
            expect![[
                r#"router-bad-port.toml:2: listen.apps = "127.0.0.1:80800": invalid socket address syntax"#
            ]],
        ),
        (
            "router-no-nodes.toml",
            expect!["router-no-nodes.toml:1: node: at least one [[node]] is needed"],
        ),
        (
            "router-probe-storm.toml",
            expect![[
                r#"router-probe-storm.toml:2: probe.interval = "1ms": at least 10ms, or probes become the load"#
            ]],
        ),
        (
            "router-replay-over-total.toml",
            expect![[
                r#"router-replay-over-total.toml:2: limits.replay_body = "1MiB": must be at most replay_total"#
            ]],
        ),
        (
            "router-same-name-twice.toml",
            expect![[
                r#"router-same-name-twice.toml:6: node[1].name = "a": another node has this name"#
            ]],
        ),
        (
            "router-syntax.toml",
            expect![[r#"router-syntax.toml:1: invalid basic string, expected `"`"#]],
        ),
        (
            "router-tls-without-file.toml",
            expect![[
                r#"router-tls-without-file.toml:2: listen.tls.certificate = "absent.pem": cannot read absent.pem: No such file or directory (os error 2)"#
            ]],
        ),
        (
            "router-unitless-deadline.toml",
            expect![
                "router-unitless-deadline.toml:2: limits.deadline = 500: invalid type: integer `500`, expected a string"
            ],
        ),
        (
            "router-unknown-policy.toml",
            expect![[
                r#"router-unknown-policy.toml:2: policy.name = "round_robin": no such policy; choose one of capped_affinity, nearest, ring_bounded"#
            ]],
        ),
    ]
}

/// Loads each file and compares what is said of it; returns the files' names.
fn check<R: Validate>(files: Vec<(&'static str, Expect)>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, expected) in files {
        let path = repo::root().join(BAD).join(name);
        let error = load::<R>(&path).err().unwrap_or_else(|| panic!("{name} loads")).to_string();
        let folder = format!("{}/", path.parent().unwrap().display());
        expected.assert_eq(&error.replace(&folder, ""));
        names.insert(name.to_owned());
    }
    names
}

#[test]
fn bad_files_say_what_is_wrong() {
    let mut checked = check::<Node>(bad_node_files());
    checked.extend(check::<Router>(bad_router_files()));
    assert_eq!(names(BAD), checked, "fixtures, and those with a message");
}
