//! A request as a node gets it: the app's own head, what each hop states anew, and the policy that
//! goes with an inference. Made once, written for each try.

use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, request::Parts};
use midspan_net::Body;
use midspan_protocol::{
    Context,
    grpc::timeout::{self, GRPC_TIMEOUT},
    headers,
};

use super::{Errand, Manner, millis};
use crate::admit;

/// Everything but the body.
pub(crate) struct Outgoing<'r> {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    errand: Errand<'r>,
}

impl<'r> Outgoing<'r> {
    pub(crate) fn new(head: Parts, errand: Errand<'r>) -> Self {
        // A GET with neither length nor encoding must not grow a `content-length: 0` on the way.
        let bodyless = !head.headers.contains_key(header::CONTENT_LENGTH)
            && !head.headers.contains_key(header::TRANSFER_ENCODING);
        let mut headers = admit::forwarded(head.headers);
        if bodyless {
            headers.remove(header::CONTENT_LENGTH);
        }
        headers.remove(GRPC_TIMEOUT);
        if errand.manner != Manner::Rest {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        Self { method: head.method, uri: head.uri, headers, errand }
    }

    /// The same without this header.
    pub(crate) fn without(mut self, name: HeaderName) -> Self {
        self.headers.remove(name);
        self
    }

    /// The request for one try. The last one takes the head with it.
    pub(crate) fn request(&mut self, router: &str, body: Body, last: bool) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() =
            if last { std::mem::take(&mut self.headers) } else { self.headers.clone() };
        let map = request.headers_mut();
        let Errand { model, terms, manner, infer } = self.errand;
        let left = terms
            .deadline
            .map(|_| millis(terms.until.saturating_duration_since(Instant::now())).max(1));
        if let Some(left) = left {
            map.insert(headers::DEADLINE_MS, HeaderValue::from(left));
            if manner != Manner::Rest
                && let Ok(value) = HeaderValue::from_str(&timeout::format(left))
            {
                map.insert(GRPC_TIMEOUT, value);
            }
        }
        if let Ok(name) = HeaderValue::from_str(router) {
            map.insert(headers::ROUTER, name);
        }
        if infer {
            let model = model.name.clone();
            let context = Context { model, deadline_ms: left, ..Context::default() };
            if let Ok(value) = HeaderValue::from_str(&context.encode()) {
                map.insert(headers::CONTEXT, value);
            }
        }
        request
    }
}
