//! Targets of the protocol crate: messages, paths and headers.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::Method;
use midspan_protocol::{
    Context, Datatype, Encoded, InferRequest, InferResponse, LoadReport, Route, Tensor, context,
    response::OutputForm, timing,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::Outcome::{self, Refused, Taken};

/// A message as the targets read it: an odd first byte says that the next two are the length of
/// the JSON part; the body follows.
fn message(data: &[u8]) -> Option<(Bytes, Option<usize>)> {
    let (kind, rest) = data.split_first()?;
    if kind.is_multiple_of(2) {
        return Some((Bytes::copy_from_slice(rest), None));
    }
    let (length, body) = rest.split_first_chunk::<2>()?;
    Some((Bytes::copy_from_slice(body), Some(u16::from_le_bytes(*length).into())))
}

/// Equal but for the bits of a NaN, which JSON does not carry.
fn same_values(left: &Tensor, right: &Tensor) -> bool {
    let same = |nan: &dyn Fn(&[u8]) -> bool, size: usize| {
        let (left, right) = (left.data.chunks(size), right.data.chunks(size));
        left.zip(right).all(|(left, right)| left == right || (nan(left) && nan(right)))
    };
    let float = |bytes: &[u8]| bytes.try_into().is_ok_and(|b| f32::from_le_bytes(b).is_nan());
    let double = |bytes: &[u8]| bytes.try_into().is_ok_and(|b| f64::from_le_bytes(b).is_nan());
    let data = match left.datatype {
        Datatype::Fp32 => same(&float, 4),
        Datatype::Fp64 => same(&double, 8),
        _ => left.data == right.data,
    };
    let head = (&left.name, left.datatype, &left.shape, left.data.len());
    data && head == (&right.name, right.datatype, &right.shape, right.data.len())
}

fn check_tensors(tensors: &[Tensor], body: &Bytes) {
    for tensor in tensors {
        let Tensor { name, datatype, shape, data } = tensor.clone();
        let again = Tensor::new(name, datatype, shape, data);
        assert_eq!(again.as_ref(), Ok(tensor), "a parsed tensor obeys its own rules");
        // Two bytes of JSON make at most one element, of at most eight bytes.
        assert!(tensor.data.len() <= body.len() * 4, "a tensor larger than its message allows");
        let inside = body.as_ptr_range().contains(&tensor.data.as_ptr());
        let fixed = tensor.datatype.size().is_some() && !tensor.data.is_empty();
        if fixed && !inside {
            assert!(tensor.data.as_ptr().addr().is_multiple_of(8), "elements are not aligned");
        }
    }
}

/// Another parser takes the JSON too, unless it holds the tokens that no other parser knows.
fn check_strict(body: &[u8], length: Option<usize>) {
    let json = &body[..length.unwrap_or(body.len())];
    let Ok(text) = std::str::from_utf8(json) else { panic!("taken without being UTF-8") };
    if !text.contains("NaN") && !text.contains("Infinity") {
        let judged = serde_json::from_str::<serde::de::IgnoredAny>(text);
        assert!(judged.is_ok(), "taken, but not JSON: {judged:?}");
    }
}

fn check_media_type(encoded: &Encoded) {
    let json = encoded.media_type() == "application/json";
    assert_eq!(json, encoded.json_length.is_none());
    assert!(encoded.json_length.is_none_or(|length| length < encoded.body.len()));
}

/// [`InferRequest::parse`].
pub(super) fn infer_request(data: &[u8]) -> Outcome {
    let Some((body, length)) = message(data) else { return Refused };
    let Ok(request) = InferRequest::parse(&body, length) else { return Refused };
    check_strict(&body, length);
    check_tensors(&request.inputs, &body);
    let names: BTreeSet<&str> = request.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names.len(), request.inputs.len(), "two inputs of one name");
    assert!(OutputForm::of(&request.parameters, &request.outputs).is_ok(), "unread parameters");
    assert!(request.priority().is_ok() && request.timeout().is_ok() && request.sequence().is_ok());
    assert!(request.outputs.iter().all(|output| output.classification().is_ok()));

    let reparse = |encoded: &Encoded| InferRequest::parse(&encoded.body, encoded.json_length);
    let Ok(binary) = request.encode(true) else { panic!("every tensor has a binary form") };
    check_media_type(&binary);
    assert_eq!(reparse(&binary).as_ref(), Ok(&request), "through the binary form");
    if let Ok(json) = request.encode(false) {
        assert_eq!(json.json_length, None);
        let again = reparse(&json).unwrap_or_else(|error| panic!("own JSON is refused: {error}"));
        let pairs = again.inputs.iter().zip(&request.inputs);
        assert!(pairs.into_iter().all(|(a, b)| same_values(a, b)), "{:?}", again.inputs);
        assert_eq!(again.inputs.len(), request.inputs.len());
        assert_eq!(
            (again.id, again.parameters, again.outputs),
            (request.id, request.parameters, request.outputs),
            "through the JSON form"
        );
    }
    Taken
}

/// [`InferResponse::parse`].
pub(super) fn infer_response(data: &[u8]) -> Outcome {
    let Some((body, length)) = message(data) else { return Refused };
    let Ok(response) = InferResponse::parse(&body, length) else { return Refused };
    check_strict(&body, length);
    check_tensors(&response.outputs, &body);
    let first = response.outputs.first();
    assert_eq!(first, first.and_then(|output| response.output(&output.name)));

    let reparse = |encoded: &Encoded| InferResponse::parse(&encoded.body, encoded.json_length);
    let Ok(binary) = response.encode(&OutputForm::binary()) else {
        panic!("every tensor has a binary form")
    };
    check_media_type(&binary);
    assert_eq!(reparse(&binary).as_ref(), Ok(&response), "through the binary form");
    if let Ok(json) = response.encode(&OutputForm::default()) {
        assert_eq!(json.json_length, None);
        let again = reparse(&json).unwrap_or_else(|error| panic!("own JSON is refused: {error}"));
        let pairs = again.outputs.iter().zip(&response.outputs);
        assert!(pairs.into_iter().all(|(a, b)| same_values(a, b)), "{:?}", again.outputs);
        let outputs = response.outputs.clone();
        assert_eq!(InferResponse { outputs, ..again }, response, "through the JSON form");
    }
    Taken
}

/// [`Route::parse`]: the first byte chooses the method, the path follows.
pub(super) fn route(data: &[u8]) -> Outcome {
    const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::HEAD, Method::DELETE];
    let Some((kind, path)) = data.split_first() else { return Refused };
    let method = &METHODS[usize::from(*kind) % METHODS.len()];
    let Ok(path) = std::str::from_utf8(path) else { return Refused };
    let Ok(route) = Route::parse(method, path) else { return Refused };
    if let Route::Model(model, _) = &route {
        for part in [Some(&model.name), model.version.as_ref()].into_iter().flatten() {
            assert!(!part.is_empty() && part != "." && part != "..", "{part:?}");
            assert!(!part.contains(['/', '\\', '\0']), "{part:?} reaches out of its segment");
        }
    }
    let canonical = canonical(&route);
    assert_eq!(Route::parse(method, &canonical).as_ref(), Ok(&route), "through {canonical}");
    Taken
}

/// A path that names `route`.
fn canonical(route: &Route) -> String {
    use midspan_protocol::Verb;
    let (model, verb) = match route {
        Route::Server => return "/v2".into(),
        Route::Live => return "/v2/health/live".into(),
        Route::Ready => return "/v2/health/ready".into(),
        Route::Index => return "/v2/repository/index".into(),
        Route::Models => return "/v2/models".into(),
        Route::Statistics => return "/v2/models/stats".into(),
        Route::SharedMemory => return "/v2/cudasharedmemory/status".into(),
        Route::Document => return "/openapi.json".into(),
        Route::Node => return "/v2/midspan/node".into(),
        Route::Model(model, verb) => (model, verb),
    };
    let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let version = model.version.as_deref().map(escape);
    let version = version.map_or_else(String::new, |version| format!("/versions/{version}"));
    // A model of the name of an endpoint is reached by an escaped letter.
    let name = match model.name.as_str() {
        "stats" => "%73tats".to_owned(),
        name => escape(name),
    };
    let (prefix, tail) = match verb {
        Verb::Metadata => ("/v2", ""),
        Verb::Ready => ("/v2", "/ready"),
        Verb::Stats => ("/v2", "/stats"),
        Verb::Config => ("/v2", "/config"),
        Verb::Infer => ("/v2", "/infer"),
        Verb::Load => ("/v2/repository", "/load"),
        Verb::Unload => ("/v2/repository", "/unload"),
        Verb::Offload => ("/v2/midspan", "/offload"),
    };
    format!("{prefix}/models/{name}{version}{tail}")
}

/// [`Context::decode`], of the bytes as they are and as the JSON inside a header.
pub(super) fn context_header(data: &[u8]) -> Outcome {
    let plain = Context::decode(data);
    let wrapped = Context::decode(URL_SAFE_NO_PAD.encode(data).as_bytes());
    let mut outcome = Refused;
    for taken in [plain, wrapped].into_iter().flatten() {
        let encoded = taken.encode();
        http::HeaderValue::from_str(&encoded).map_or_else(|error| panic!("{error}"), drop);
        // Defaults that the sender left out and escapes can make it longer than what is taken.
        if encoded.len() <= context::MAX_ENCODED {
            assert_eq!(Context::decode(encoded.as_bytes()).as_ref(), Ok(&taken));
        }
        assert_eq!(
            taken.allows("somewhere"),
            taken.regions.is_empty() || taken.regions.contains(&"somewhere".to_owned())
        );
        outcome = Taken;
    }
    outcome
}

/// [`LoadReport::decode`].
pub(super) fn load_report(data: &[u8]) -> Outcome {
    let report = std::str::from_utf8(data).ok().and_then(LoadReport::decode);
    let Some(report) = report else { return Refused };
    assert_eq!(LoadReport::decode(&report.encode()), Some(report));
    assert!(report.orca().starts_with("TEXT application_utilization="));
    Taken
}

/// [`timing::entries`] and [`timing::find`]; taken when there is an entry.
pub(super) fn server_timing(data: &[u8]) -> Outcome {
    let Ok(value) = std::str::from_utf8(data) else { return Refused };
    let entries: Vec<(&str, Duration)> = timing::entries(value).collect();
    let mut again = String::new();
    for (name, duration) in &entries {
        assert!(!name.is_empty() && name.trim() == *name && !name.contains([',', ';']), "{name:?}");
        assert_eq!(
            timing::find(value, name),
            entries.iter().find(|entry| entry.0 == *name).map(|entry| entry.1),
            "the first of a name counts"
        );
        timing::push(&mut again, name, *duration);
    }
    // Written with microseconds; beyond a year a double's own steps are coarser.
    let year = Duration::from_secs(366 * 86_400);
    if entries.iter().all(|entry| entry.1 < year) {
        let read: Vec<(&str, Duration)> = timing::entries(&again).collect();
        assert_eq!(read.len(), entries.len(), "{again}");
        for (read, written) in read.iter().zip(&entries) {
            assert_eq!(read.0, written.0);
            assert!(read.1.abs_diff(written.1) <= Duration::from_micros(1), "{again}");
        }
    }
    if entries.is_empty() { Refused } else { Taken }
}
