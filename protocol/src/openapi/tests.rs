//! The document covers every endpoint, and nothing in it points nowhere.

use std::collections::BTreeSet;

use http::Method;

use super::*;
use crate::{ModelName, Route, Verb};

/// The path of every endpoint that an app may call; a new endpoint does not compile without one.
fn path(route: &Route) -> Option<String> {
    Some(match route {
        Route::Server => "/v2".into(),
        Route::Live => "/v2/health/live".into(),
        Route::Ready => "/v2/health/ready".into(),
        Route::Index => "/v2/repository/index".into(),
        Route::Models => "/v2/models".into(),
        Route::Statistics => "/v2/models/stats".into(),
        Route::SharedMemory => "/v2/systemsharedmemory/status".into(),
        Route::Document => "/openapi.json".into(),
        // Between sites only.
        Route::Node | Route::Model(_, Verb::Offload) => return None,
        Route::Model(name, verb) => {
            let (prefix, tail) = match verb {
                Verb::Metadata => ("/v2", ""),
                Verb::Ready => ("/v2", "/ready"),
                Verb::Stats => ("/v2", "/stats"),
                Verb::Config => ("/v2", "/config"),
                Verb::Infer => ("/v2", "/infer"),
                Verb::Load => ("/v2/repository", "/load"),
                Verb::Unload => ("/v2/repository", "/unload"),
                Verb::Offload => return None,
            };
            let version = name.version.as_ref().map_or("", |_| "/versions/{version}");
            format!("{prefix}/models/{{model}}{version}{tail}")
        }
    })
}

fn routes() -> Vec<Route> {
    let verbs = [
        Verb::Metadata,
        Verb::Ready,
        Verb::Stats,
        Verb::Config,
        Verb::Infer,
        Verb::Load,
        Verb::Unload,
    ];
    let named = |verb| {
        let versioned = !matches!(verb, Verb::Load | Verb::Unload);
        let versions = [None, Some("{version}".to_owned())].into_iter();
        versions
            .filter(move |version| version.is_none() || versioned)
            .map(move |version| Route::Model(ModelName { name: "{model}".into(), version }, verb))
    };
    let plain = [
        Route::Server,
        Route::Live,
        Route::Ready,
        Route::Index,
        Route::Models,
        Route::Statistics,
        Route::SharedMemory,
        Route::Document,
    ];
    plain.into_iter().chain(verbs.into_iter().flat_map(named)).collect()
}

#[test]
fn every_endpoint_is_described_and_every_description_is_an_endpoint() {
    let described: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.path).collect();
    for route in routes() {
        let path = path(&route).unwrap();
        assert!(described.contains(path.as_str()), "{path} is not described");
        let (found, _) = Route::of_path(&path).unwrap();
        assert_eq!(found, route, "{path}");
    }
    for operation in OPERATIONS {
        let method = if operation.post { Method::POST } else { Method::GET };
        let route = Route::parse(&method, operation.path).unwrap();
        assert!(path(&route).is_some(), "{} is not for apps", operation.path);
    }
    assert_eq!(described.len(), OPERATIONS.len(), "a path is described twice");
}

#[test]
fn references_lead_somewhere_and_ids_are_unique() {
    let document = build();
    let mut stack = vec![&document];
    let mut references = 0;
    while let Some(value) = stack.pop() {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
                    references += 1;
                }
                stack.extend(map.values());
            }
            Value::Array(list) => stack.extend(list),
            _ => {}
        }
    }
    assert!(references > 50, "{references}");
    let ids: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len());
}
