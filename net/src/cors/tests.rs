//! Preflights and decorated answers, also over a socket.

use super::*;
use crate::{Limits, Tasks, listen};

fn head(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
}

fn asked(list: &str) -> HeaderMap {
    head(&[
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", list),
    ])
}

fn allowed_headers(cors: &Cors, list: &str) -> Vec<String> {
    let response = cors.preflight(&asked(list), "GET, POST").unwrap();
    let value = response.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
    value.split(", ").map(str::to_owned).collect()
}

#[test]
fn a_preflight_is_answered_with_what_it_asks_for() {
    let cors = Cors::default();
    let response = cors.preflight(&asked("Inference-Header-Content-Length"), "GET, POST").unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let map = response.headers();
    assert_eq!(map[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    assert_eq!(map[header::ACCESS_CONTROL_ALLOW_METHODS], "GET, POST");
    assert_eq!(map[header::ACCESS_CONTROL_MAX_AGE], "7200");
    let vary: Vec<_> = map.get_all(header::VARY).iter().collect();
    assert_eq!(vary, ["origin", "access-control-request-method", "access-control-request-headers"]);
    assert!(!map.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
}

#[test]
fn headers_are_allowed_once_and_unknown_ones_as_asked() {
    let cors = Cors::default();
    let names = allowed_headers(&cors, "content-type, X-Mine,, bad name,midspan-exit");
    assert_eq!(names.len(), SENT.len() + 1, "{names:?}");
    for name in ["inference-header-content-length", "traceparent", "authorization", "x-mine"] {
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name} in {names:?}");
    }
    let ours = headers::FROM_CLIENTS;
    assert!(ours.iter().all(|name| SENT.contains(name)), "what apps may set, pages may");
    let endless = "a,".repeat(MAX_ASKED);
    assert_eq!(allowed_headers(&cors, &endless).len(), SENT.len());
}

#[test]
fn options_without_origin_or_method_is_no_preflight() {
    let cors = Cors::default();
    for pairs in [
        &[][..],
        &[("origin", "https://app.example")],
        &[("access-control-request-method", "POST")],
    ] {
        assert!(cors.preflight(&head(pairs), "GET").is_none(), "{pairs:?}");
    }
}

#[test]
fn decorating_twice_is_decorating_once() {
    let cors = Cors::default();
    let origin = HeaderValue::from_static("https://app.example");
    let mut answer = head(&[("vary", "Accept-Encoding")]);
    cors.decorate(Some(&origin), &mut answer);
    let once = answer.clone();
    cors.decorate(Some(&origin), &mut answer);
    assert_eq!(answer, once);
    assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    let exposed = answer[header::ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap();
    assert!(exposed.split(", ").any(|name| name == "inference-header-content-length"));
    assert!(exposed.split(", ").any(|name| name == "midspan-answered-by"));
    let vary: Vec<_> = answer.get_all(header::VARY).iter().collect();
    assert_eq!(vary, ["Accept-Encoding", "origin"]);

    let mut plain = HeaderMap::new();
    cors.decorate(None, &mut plain);
    assert_eq!(plain, head(&[("vary", "origin")]));
}

#[test]
fn a_list_of_origins_allows_only_those() {
    let listed = HeaderValue::from_static("https://app.example");
    let cors = Cors::new(Origins::Only(vec![listed.clone()]));
    let mut answer = HeaderMap::new();
    cors.decorate(Some(&listed), &mut answer);
    assert_eq!(answer[header::ACCESS_CONTROL_ALLOW_ORIGIN], listed);
    let other = HeaderValue::from_static("https://app.example.evil");
    cors.decorate(Some(&other), &mut answer);
    assert_eq!(answer, head(&[("vary", "origin")]));

    let mut request = asked("content-type");
    request.insert(header::ORIGIN, other);
    let response = cors.preflight(&request, "POST").unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert!(!response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    assert!(!response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_HEADERS));
}

#[tokio::test]
async fn a_preflight_over_a_socket_has_no_body_and_keeps_the_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let tasks = Tasks::default();
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    listen::serve(listener, Limits::default(), &tasks, |request, _peer| async move {
        let cors = Cors::default();
        let mut answer = cors
            .preflight(request.headers(), "POST")
            .unwrap_or_else(|| reply::error(StatusCode::NOT_FOUND, "no such path"));
        cors.decorate(request.headers().get(header::ORIGIN), answer.headers_mut());
        answer
    })
    .unwrap();
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = "OPTIONS /v2/models/m/infer HTTP/1.1\r\nhost: x\r\norigin: https://app.example\r\n\
        access-control-request-method: POST\r\n\r\n\
        GET /nowhere HTTP/1.1\r\nhost: x\r\norigin: https://app.example\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    let (preflight, rest) = answers.split_once("\r\n\r\n").unwrap();
    assert!(preflight.starts_with("HTTP/1.1 204"), "{answers}");
    assert!(!preflight.contains("\r\ncontent-length"), "{answers}");
    assert!(rest.starts_with("HTTP/1.1 404"), "{answers}");
    assert!(rest.contains("access-control-allow-origin: *"), "{answers}");
}

#[test]
fn origins_are_read_from_a_list() {
    let list =
        |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    assert_eq!(Origins::parse(&list(&["*"])), Ok(Origins::Any));
    assert_eq!(Origins::parse(&[]), Ok(Origins::Only(vec![])));
    let two = Origins::parse(&list(&["https://a.example", "http://localhost:3000"])).unwrap();
    assert!(matches!(two, Origins::Only(list) if list.len() == 2));
    for bad in [
        "a.example",
        "https://a.example/",
        "https://a.example/path",
        "https://",
        "\n",
        "https://*.a",
        "https://A.b",
    ] {
        assert!(Origins::parse(&list(&[bad])).unwrap_err().contains("no origin"), "{bad:?}");
    }
}

#[test]
fn options_without_an_origin_names_the_methods() {
    let response = Cors::default().options(&head(&[]), "GET, HEAD");
    assert_eq!(
        (response.status().as_u16(), &response.headers()[header::ALLOW]),
        (204, &"GET, HEAD".parse().unwrap())
    );
    let response = Cors::default().options(&asked("x-y"), "POST");
    assert!(response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_METHODS));
}
