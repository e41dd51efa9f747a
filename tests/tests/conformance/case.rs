//! The language that the table is written in: one request, what is expected of its answer, and
//! where the two hops may differ. Cases are data; nothing here sends anything.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use http::Method;
use serde_json::Value;

use crate::{
    answer::{Answer, same},
    harness::{Hop, Side},
    sweep::Sweep,
};

/// A condition of a scripted case.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// What a scripted case comes to.
pub(crate) type Outcome = Result<(), String>;
type Check = Box<dyn Fn(&Answer) -> Outcome>;
type Script = Box<dyn Fn(Side) -> LocalBoxFuture<'static, Outcome>>;
type Alone = Box<dyn Fn(Hop, Sweep) -> LocalBoxFuture<'static, Outcome>>;

/// Which running pair of node and router a case is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Every model, bodies up to 128 MiB.
    Main,
    /// Bodies up to 1 MiB.
    Small,
    /// One worker, a queue of four, a model that takes its time.
    Slow,
    /// `model_control = true`.
    Control,
}

/// How a request's body is framed on HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    /// In chunks of so many bytes, each written by itself.
    Chunked(usize),
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    pub(crate) framing: Framing,
}

impl Call {
    pub(crate) fn new(method: Method, path: &str, body: impl Into<Bytes>) -> Self {
        let (path, body) = (path.to_owned(), body.into());
        Self { method, path, headers: Vec::new(), body, framing: Framing::Length }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path, "")
    }

    pub(crate) fn infer(model: &str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, &format!("/v2/models/{model}/infer"), body)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// What a case does.
pub(crate) enum Act {
    Call(Call),
    /// Several requests at one hop.
    Script(Script),
    /// A node and a router of its own, which it may stop.
    Alone(Alone),
}

/// One line of the table, or a part of one.
pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) what: String,
    pub(crate) at: At,
    pub(crate) act: Act,
    pub(crate) checks: Vec<Check>,
    /// Why the router's answer may differ from the node's.
    pub(crate) differs: Option<&'static str>,
    pub(crate) h1_only: bool,
}

impl Case {
    fn new(id: &'static str, what: impl Into<String>, act: Act) -> Self {
        let checks = Vec::new();
        Self { id, what: what.into(), at: At::Main, act, checks, differs: None, h1_only: false }
    }

    /// Names what the request alone does not tell.
    pub(crate) fn named(mut self, what: &str) -> Self {
        self.what = what.to_owned();
        self
    }

    pub(crate) fn at_pair(mut self, at: At) -> Self {
        self.at = at;
        self
    }

    /// Node and router may answer differently, and why.
    pub(crate) fn opaque(mut self, why: &'static str) -> Self {
        self.differs = Some(why);
        self
    }

    /// Not repeated over HTTP/2: it is about HTTP/1.1, or large.
    pub(crate) fn h1_only(mut self) -> Self {
        self.h1_only = true;
        self
    }

    /// Adds a header to the request.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Act::Call(call) = &mut self.act {
            call.headers.push((name, value.into()));
        }
        self
    }

    /// Sends the body in chunks of so many bytes.
    pub(crate) fn chunked(mut self, size: usize) -> Self {
        if let Act::Call(call) = &mut self.act {
            call.framing = Framing::Chunked(size);
        }
        self.h1_only()
    }

    /// Adds any expectation.
    pub(crate) fn check(mut self, check: impl Fn(&Answer) -> Outcome + 'static) -> Self {
        self.checks.push(Box::new(check));
        self
    }

    pub(crate) fn status(self, statuses: &'static [u16]) -> Self {
        self.check(move |answer| {
            ensure!(statuses.contains(&answer.status), "expected {statuses:?}");
            Ok(())
        })
    }

    pub(crate) fn ok(self) -> Self {
        self.status(&[200])
    }

    /// An error in the protocol's form, with this status.
    pub(crate) fn err(self, status: u16) -> Self {
        self.check(move |answer| {
            ensure!(answer.status == status, "expected {status}");
            answer.error().map(drop)
        })
    }

    /// The error names this.
    pub(crate) fn says(self, part: &'static str) -> Self {
        self.check(move |answer| {
            let text = answer.error()?;
            ensure!(text.contains(part), "the error does not say '{part}'");
            Ok(())
        })
    }

    /// Either answered, or refused with 400 in the protocol's form.
    pub(crate) fn ok_or_400(self) -> Self {
        self.check(|answer| match answer.status {
            200 => answer.json().map(drop),
            400 => answer.error().map(drop),
            _ => Err("expected 200 or 400".into()),
        })
    }

    pub(crate) fn header(self, name: &'static str, value: &'static str) -> Self {
        self.check(move |answer| {
            let got = answer.header(name);
            ensure!(got == value, "header {name} is '{got}', expected '{value}'");
            Ok(())
        })
    }

    /// A header, a list, has this member.
    pub(crate) fn lists(self, name: &'static str, member: &'static str) -> Self {
        self.check(move |answer| {
            let got = answer.header(name);
            ensure!(answer.header_has(name, member), "header {name} is '{got}', without {member}");
            Ok(())
        })
    }

    pub(crate) fn without(self, name: &'static str) -> Self {
        self.check(move |answer| {
            let got = answer.header(name);
            ensure!(!answer.headers.contains_key(name), "has header {name}: '{got}'");
            Ok(())
        })
    }

    /// The JSON's member at `pointer`.
    pub(crate) fn at(self, pointer: &'static str, expected: impl Into<Value>) -> Self {
        let expected = expected.into();
        self.check(move |answer| {
            let (json, _) = answer.split()?;
            let got = json.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(same(got, &expected), "{pointer} is {got}, expected {expected}");
            Ok(())
        })
    }

    pub(crate) fn absent(self, pointer: &'static str) -> Self {
        self.check(move |answer| {
            let (json, _) = answer.split()?;
            ensure!(json.pointer(pointer).is_none(), "has {pointer}");
            Ok(())
        })
    }

    /// The first output's data.
    pub(crate) fn data(self, expected: impl Into<Value>) -> Self {
        self.at("/outputs/0/data", expected)
    }

    /// The blobs of the binary outputs, in order, and the lengths that announce them.
    pub(crate) fn blobs(self, expected: &[&[u8]]) -> Self {
        let expected: Vec<Bytes> = expected.iter().map(|b| Bytes::copy_from_slice(b)).collect();
        self.check(move |answer| {
            let (_, blobs) = answer.split()?;
            ensure!(blobs == expected, "blobs {blobs:?}, expected {expected:?}");
            let binary = answer.headers.contains_key("inference-header-content-length");
            let any = expected.iter().any(|blob| !blob.is_empty());
            ensure!(binary || !any, "blobs without inference-header-content-length");
            let (length, media) = (answer.body.len(), answer.header("content-type"));
            ensure!(answer.header("content-length") == length.to_string(), "no content-length");
            let expected = if binary { "application/octet-stream" } else { "application/json" };
            ensure!(media == expected, "content-type {media}, expected {expected}");
            Ok(())
        })
    }
}

/// A request of any kind.
pub(crate) fn call(id: &'static str, call: Call) -> Case {
    let shown = String::from_utf8_lossy(&call.body[..call.body.len().min(120)]).into_owned();
    let what = format!("{} {} {shown}", call.method, call.path);
    Case::new(id, what.trim(), Act::Call(call))
}

pub(crate) fn get(id: &'static str, path: &str) -> Case {
    call(id, Call::get(path))
}

pub(crate) fn post(id: &'static str, path: &str, body: impl Into<Bytes>) -> Case {
    call(id, Call::new(Method::POST, path, body))
}

/// An inference of `model` with this body.
pub(crate) fn infer(id: &'static str, model: &str, body: impl Into<Bytes>) -> Case {
    call(id, Call::infer(model, body))
}

/// The JSON of an inference of one tensor `x`.
pub(crate) fn one(datatype: &str, shape: &str, data: &str) -> String {
    format!(
        r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}"#
    )
}

/// An inference of one tensor of `id_<datatype>`.
pub(crate) fn echo(id: &'static str, datatype: &str, shape: &str, data: &str) -> Case {
    let model = format!("id_{}", datatype.to_lowercase());
    infer(id, &model, one(datatype, shape, data))
}

/// Several requests at one hop.
pub(crate) fn script(
    id: &'static str,
    what: &str,
    at: At,
    run: impl Fn(Side) -> LocalBoxFuture<'static, Outcome> + 'static,
) -> Case {
    Case::new(id, what, Act::Script(Box::new(run))).at_pair(at).opaque("several requests")
}

/// Several requests at a node and a router of its own.
pub(crate) fn alone(
    id: &'static str,
    what: &str,
    run: impl Fn(Hop, Sweep) -> LocalBoxFuture<'static, Outcome> + 'static,
) -> Case {
    Case::new(id, what, Act::Alone(Box::new(run))).opaque("it stops them")
}
