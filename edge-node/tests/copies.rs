//! A process of its own, whose allocator counts: how often a tensor's bytes are copied between the
//! connection and the session. A copy needs memory to go to, so that what was allocated bounds what
//! was copied. It must stay one test, because all that runs in the process is counted.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is the test's report")]

use std::{
    alloc::System,
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use midspan_net::{BodyError, body::collect_aligned};
use midspan_protocol::{
    Datatype, InferRequest, InferResponse, Parameters, Tensor, response::OutputForm,
};
use midspan_runtime::{ElementType, Executor, Session, SessionOptions, TensorRef, test_support};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ELEMENTS: usize = 1 << 17;
const BLOB: usize = ELEMENTS * 8;

/// What everything that is not the tensor may take: the parsed JSON, lists, ONNX Runtime's handles.
const REST: usize = 32 << 10;

/// A body as hyper gives it: frames, and their length if the peer announced it.
struct Frames {
    frames: VecDeque<Bytes>,
    length: Option<u64>,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.frames.pop_front().map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A request for a FP64 tensor of 1 MiB, its JSON made longer by `id`.
fn request(id: usize) -> (Bytes, usize) {
    let data: Vec<u8> = (0..BLOB).map(|at| (at % 251) as u8).collect();
    let tensor = Tensor::new("x", Datatype::Fp64, vec![ELEMENTS as u64], data.into()).unwrap();
    let request = InferRequest {
        id: Some("i".repeat(id)),
        parameters: Parameters::default(),
        inputs: vec![tensor],
        outputs: Vec::new(),
    };
    let encoded = request.encode(true).unwrap();
    (encoded.body, encoded.json_length.unwrap())
}

/// Bytes allocated while a body goes the way to the session and through it.
async fn spent(session: &mut Session, id: usize, frame: usize, announced: bool) -> usize {
    let (body, json_length) = request(id);
    let length = announced.then_some(body.len() as u64);
    let mut rest = body;
    let frames =
        std::iter::from_fn(|| (!rest.is_empty()).then(|| rest.split_to(frame.min(rest.len()))));
    let frames = Frames { frames: frames.collect(), length };
    let region = Region::new(ALLOCATOR);
    let whole = collect_aligned(frames, 2 * BLOB, Some(json_length)).await.unwrap();
    let request = InferRequest::parse(&whole, Some(json_length)).unwrap();
    let view = TensorRef::new(ElementType::F64, &[ELEMENTS], &request.inputs[0].data).unwrap();
    let outputs = session.run(&[("x", view)]).unwrap();
    let spent = region.change().bytes_allocated;
    assert_eq!(outputs[0].bytes(), (ELEMENTS as i64).to_le_bytes());
    spent
}

#[tokio::test]
async fn tensors_are_copied_once_on_the_way_in_and_twice_on_the_way_out() {
    test_support::library();
    way_in().await;
    // Out of the session's memory, and behind the JSON.
    let (ran, encoded) = answered();
    assert!((BLOB..BLOB + REST).contains(&ran), "{ran} bytes");
    assert!((BLOB..BLOB + REST).contains(&encoded), "{encoded} bytes");
}

async fn way_in() {
    // The shape of its input is all that this model answers: nothing large is allocated after it.
    let ends = ((ElementType::F64, &[][..]), (ElementType::I64, &[][..]));
    let model = test_support::model("Shape", &[], ends.0, ends.1);
    let mut session = Session::load(&model, &SessionOptions::default(), None).unwrap();
    spent(&mut session, 0, BLOB, true).await;
    // Frames as HTTP/2 and HTTP/1.1 make them; every length of the JSON modulo 8.
    for frame in [16 << 10, 100_000, 409_600, BLOB] {
        for id in 0..8 {
            let spent = spent(&mut session, id, frame, true).await;
            let expected = BLOB..BLOB + REST;
            assert!(expected.contains(&spent), "frames of {frame}, id of {id}: {spent} bytes");
        }
    }
    // In one frame: not at all if it happens to suit, else once, and never twice.
    let mut untouched = 0;
    for id in 0..8 {
        let spent = spent(&mut session, id, usize::MAX, true).await;
        assert!(spent < REST || (BLOB..BLOB + REST).contains(&spent), "id of {id}: {spent} bytes");
        untouched += usize::from(spent < REST);
    }
    assert_eq!(untouched, 1);
    // Tiny frames: what comes before the announced length is believed moves once more.
    let tiny = spent(&mut session, 0, 1000, true).await;
    assert!(tiny < BLOB + (128 << 10), "{tiny} bytes");
    // Nothing was announced: the buffer doubles on the way.
    let unannounced = spent(&mut session, 0, 16 << 10, false).await;
    assert!(unannounced < 3 * BLOB + REST, "{unannounced} bytes");
}

/// Bytes allocated by the run of a model that gives its input back, and by writing the answer.
fn answered() -> (usize, usize) {
    let any = (ElementType::F64, &[][..]);
    let model = test_support::model("Identity", &[], any, any);
    let mut session = Session::load(&model, &SessionOptions::default(), None).unwrap();
    let input = midspan_runtime::Tensor::new(ElementType::F64, vec![ELEMENTS], vec![1; BLOB]);
    let input = input.unwrap();
    let region = Region::new(ALLOCATOR);
    let output = session.run(&[("x", input.view())]).unwrap().remove(0);
    let ran = region.change().bytes_allocated;
    let shape = vec![ELEMENTS as u64];
    let output = Tensor::new("y", Datatype::Fp64, shape, output.into_bytes().into()).unwrap();
    let answer = InferResponse { outputs: vec![output], ..InferResponse::default() };
    let encoded = answer.encode(&OutputForm::binary()).unwrap();
    assert_eq!(encoded.body.len() - encoded.json_length.unwrap(), BLOB);
    (ran, region.change().bytes_allocated - ran)
}
