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

#[test]
fn endpoints_between_sites_are_no_endpoints_for_apps() {
    for (method, path) in
        [("GET", "/v2/midspan/node"), ("POST", "/v2/midspan/models/m/versions/1/offload")]
    {
        let refused = admit(&head(method, path, &[]), &RawLimits::default(), Instant::now());
        assert_eq!(refused.unwrap_err().status(), 404, "{path}");
    }
}

#[test]
fn deadlines_and_lengths_are_bounded() {
    let limits = RawLimits::default();
    let deadline = |value: &str| {
        let head = head("GET", "/v2", &[("midspan-deadline-ms", value)]);
        admit(&head, &limits, Instant::now()).map(|ok| ok.terms.deadline.unwrap())
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
            ("connection", "keep-alive, x-private, content-length, Content-Encoding"),
            ("connection", ",, bad name\", inference-header-content-length, content-type"),
            ("content-encoding", "gzip"),
            ("content-type", "application/octet-stream"),
            ("x-private", "1"),
            ("content-length", "3"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("x-public", "1"),
            ("inference-header-content-length", "7"),
        ],
    );
    let out = forwarded(head.headers);
    let mut names: Vec<&str> = out.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "content-encoding",
            "content-length",
            "content-type",
            "inference-header-content-length",
            "midspan-exit",
            "midspan-session",
            "x-public"
        ]
    );
}
