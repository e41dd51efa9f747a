//! What is known of models as nodes list them, and lists change.

use midspan_net::config::parse;

use super::*;
use crate::config::RawConfig;

fn fleet(nodes: &[&str]) -> Fleet {
    let text: String = nodes
        .iter()
        .map(|name| format!("[[node]]\nname = \"{name}\"\naddress = \"127.0.0.1:1\"\n"))
        .collect();
    let config = parse::<RawConfig>("r.toml", &text, std::path::Path::new(".")).unwrap();
    Fleet::new(&config).unwrap()
}

fn learn(fleet: &Fleet, index: usize, models: &[(&str, &str, &str)]) {
    let entry = |(name, version, state): &(&str, &str, &str)| RepositoryEntry {
        name: (*name).into(),
        version: (*version).into(),
        state: (*state).into(),
        reason: String::new(),
    };
    let models = models.iter().map(entry).collect();
    fleet.learn(index, NodeInfo { workers: 1, models, ..NodeInfo::default() }).unwrap();
}

fn named(name: &str, version: Option<&str>) -> ModelName {
    ModelName { name: name.into(), version: version.map(Into::into) }
}

/// Names of the nodes that may be asked for a model; `None` when it is unknown.
fn serving(fleet: &Fleet, name: &str, version: Option<&str>) -> Option<Vec<String>> {
    let id = fleet.model(&named(name, version))?;
    let topology = fleet.topology();
    let serves =
        topology.nodes().filter(|(_, spec)| spec.models.iter().any(|served| served.model == id));
    let index = |spec: &NodeSpec| fleet.index_of(spec.key).unwrap();
    let mut names: Vec<String> =
        serves.map(|(_, spec)| fleet.nodes[index(spec)].name.clone()).collect();
    names.sort();
    Some(names)
}

#[test]
fn a_model_that_is_ready_nowhere_is_left_with_those_who_know_it() {
    let fleet = fleet(&["a", "b", "c"]);
    assert_eq!(serving(&fleet, "m", None), None);
    learn(&fleet, 0, &[("m", "1", "READY")]);
    learn(&fleet, 1, &[("m", "1", "UNAVAILABLE"), ("m", "2", "LOADING")]);
    learn(&fleet, 2, &[]);
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(serving(&fleet, "m", None), names(&["a"]));
    assert_eq!(serving(&fleet, "m", Some("1")), names(&["a"]));
    assert_eq!(serving(&fleet, "m", Some("2")), names(&["b"]));
    learn(&fleet, 0, &[("m", "1", "UNAVAILABLE")]);
    assert_eq!(serving(&fleet, "m", Some("1")), names(&["a", "b"]));
    assert_eq!(fleet.listing(Some(&named("m", None))), [0, 1]);
    assert_eq!(fleet.listing(Some(&named("m", Some("2")))), [1]);
    assert_eq!(fleet.listing(None), [0, 1, 2]);
}

#[test]
fn a_model_that_nobody_lists_any_more_is_unknown_and_keeps_its_number() {
    let fleet = fleet(&["a"]);
    learn(&fleet, 0, &[("m", "1", "READY"), ("n", "1", "READY")]);
    let id = fleet.model(&named("m", None)).unwrap();
    learn(&fleet, 0, &[("n", "1", "READY")]);
    assert_eq!(fleet.model(&named("m", None)), None);
    assert_eq!(fleet.model_name(id), Some(named("m", None)), "old decisions are still told");
    learn(&fleet, 0, &[("m", "1", "READY")]);
    assert_eq!(fleet.model(&named("m", None)), Some(id));
}

#[test]
fn the_repository_has_each_model_once_in_its_best_state() {
    let fleet = fleet(&["a", "b"]);
    learn(&fleet, 0, &[("n", "1", "LOADING"), ("m", "1", "UNAVAILABLE")]);
    learn(&fleet, 1, &[("m", "2", "READY"), ("m", "1", "READY"), ("n", "1", "UNAVAILABLE")]);
    let entries = fleet.repository();
    let entries: Vec<_> =
        entries.iter().map(|e| format!("{}/{} {}", e.name, e.version, e.state)).collect();
    assert_eq!(entries, ["m/1 READY", "m/2 READY", "n/1 LOADING"]);
}
