//! Heads, good and bad.

use http::Request;

use super::*;

fn head(method: &str, path: &str, extra: &[(&str, &str)]) -> Parts {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in extra {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn admit_path(method: &str, path: &str) -> Result<Asked, RouteError> {
    admit(&head(method, path, &[]), &RawLimits::default(), Instant::now()).map(|ok| ok.asked)
}

fn model(name: &str, version: Option<&str>, infer: bool) -> Asked {
    let model = ModelName { name: name.into(), version: version.map(Into::into) };
    Asked::Model { model, infer }
}

#[test]
fn paths_of_the_protocol() {
    for (method, path, asked) in [
        ("GET", "/v2", Asked::Own(Own::Server)),
        ("GET", "/v2/", Asked::Own(Own::Server)),
        ("HEAD", "/v2/health/ready", Asked::Own(Own::Ready)),
        ("POST", "/v2/repository/index", Asked::Own(Own::Index)),
        ("POST", "/v2/models/m/infer?q=1", model("m", None, true)),
        ("POST", "/v2/models/m/versions/v10/infer", model("m", Some("v10"), true)),
        ("GET", "/v2/models/m%C3%B6del%20a/ready", model("mödel a", None, false)),
        ("GET", "/v2/models/m/versions/1", model("m", Some("1"), false)),
    ] {
        assert_eq!(admit_path(method, path).unwrap(), asked, "{method} {path}");
    }
}

#[test]
fn refusals_have_the_right_status() {
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/v2x", 404),
        ("GET", "/v2/nope", 404),
        ("POST", "/v2/models/m/nope", 404),
        ("POST", "/v2/midspan/models/m/versions/1/offload", 404),
        ("GET", "/v2/models/m/infer", 405),
        ("POST", "/v2/health/live", 405),
        ("DELETE", "/v2", 405),
        ("GET", "/v2/models/%FF", 400),
        ("GET", "/v2/models/%2E%2E", 400),
        ("GET", "/v2/models/a%00b", 400),
        ("GET", "/v2/models//ready", 400),
    ] {
        assert_eq!(admit_path(method, path).unwrap_err().status(), status, "{method} {path}");
    }
}

#[test]
fn deadlines_and_lengths_are_bounded() {
    let limits = RawLimits::default();
    let deadline = |value: &str| {
        let head = head("GET", "/v2", &[("midspan-deadline-ms", value)]);
        admit(&head, &limits, Instant::now()).map(|ok| ok.deadline)
    };
    assert_eq!(deadline("250").unwrap(), Duration::from_millis(250));
    assert_eq!(deadline("99999999").unwrap(), limits.max_deadline.0);
    for bad in ["0", "-1", "soon", ""] {
        assert_eq!(deadline(bad).unwrap_err().status(), 400, "{bad}");
    }
    let sized = |length: u64| {
        let head = head("POST", "/v2/models/m/infer", &[("content-length", &length.to_string())]);
        admit(&head, &limits, Instant::now()).map(|_| ())
    };
    assert!(sized(limits.body.0).is_ok());
    assert_eq!(sized(limits.body.0 + 1).unwrap_err().status(), 413);
}

#[test]
fn only_documented_headers_of_ours_pass() {
    let head = head(
        "GET",
        "/v2",
        &[
            ("midspan-context", "forged"),
            ("midspan-router", "me"),
            ("midspan-exit", "never"),
            ("midspan-session", "s"),
            ("midspan-deadline-ms", "5"),
            ("connection", "keep-alive, x-private, content-length"),
            ("x-private", "1"),
            ("content-length", "3"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("x-public", "1"),
            ("inference-header-content-length", "7"),
        ],
    );
    let out = forwarded(&head.headers);
    let mut names: Vec<&str> = out.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "content-length",
            "inference-header-content-length",
            "midspan-exit",
            "midspan-session",
            "x-public"
        ]
    );
}
