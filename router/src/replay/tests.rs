//! Bodies around the size that is kept, and the budget.

use http_body_util::StreamBody;
use midspan_net::body::collect;

use super::*;

fn chunked(parts: &[usize]) -> Body {
    let frames: Vec<_> =
        parts.iter().map(|len| Ok::<_, BodyError>(Frame::data(vec![7_u8; *len].into()))).collect();
    boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

async fn read(parts: &[usize], budget: &Arc<ReplayBudget>) -> Result<Upload, RouteError> {
    Upload::read(chunked(parts), 8, 20, budget).await
}

async fn length(upload: &mut Upload) -> Result<usize, String> {
    let body = upload.next().expect("a try is left");
    collect(body, 100).await.map(|bytes| bytes.len()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn bodies_up_to_the_bound_are_kept_and_larger_ones_stream_once() {
    let budget = Arc::new(ReplayBudget::new(100));
    let mut kept = read(&[3, 5], &budget).await.unwrap();
    assert!(kept.is_kept());
    assert_eq!(length(&mut kept).await, Ok(8));
    assert_eq!(length(&mut kept).await, Ok(8));
    assert!(budget.free() < 100);
    drop(kept);
    assert_eq!(budget.free(), 100);

    let mut streamed = read(&[3, 6, 11], &budget).await.unwrap();
    assert!(!streamed.is_kept());
    assert_eq!(length(&mut streamed).await, Ok(20));
    assert!(streamed.next().is_none() && streamed.fault(20).is_none());
    assert_eq!(budget.free(), 100);
}

#[tokio::test]
async fn over_the_limit_is_the_clients_fault() {
    let budget = Arc::new(ReplayBudget::new(100));
    let mut upload = read(&[9, 12], &budget).await.unwrap();
    assert!(length(&mut upload).await.is_err());
    assert_eq!(upload.fault(20).unwrap().status(), 413);
}

#[tokio::test]
async fn without_budget_nothing_is_kept() {
    let budget = Arc::new(ReplayBudget::new(4));
    let upload = read(&[3], &budget).await.unwrap();
    assert!(!upload.is_kept());
    let budget = Arc::new(ReplayBudget::new(3));
    let sized = Upload::read(full("abc"), 8, 20, &budget).await.unwrap();
    assert!(sized.is_kept(), "a body of known length takes only that");
}

#[tokio::test]
async fn downloads_are_whole_up_to_the_bound() {
    assert!(
        matches!(download(chunked(&[3, 5]), 8).await, Ok(Download::Whole(b, None)) if b.len() == 8)
    );
    assert!(
        matches!(download(chunked(&[3, 6]), 8).await, Ok(Download::Partial(b, _)) if b.len() == 9)
    );
    assert!(
        matches!(download(full(vec![0; 9]), 8).await, Ok(Download::Partial(b, _)) if b.is_empty())
    );
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the task ends with the test")]
async fn an_endless_body_is_cut_off_when_nobody_listens_any_more() {
    let waiting = futures_util::stream::pending::<Result<Frame<Bytes>, BodyError>>();
    let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
    let chained = futures_util::StreamExt::chain(first, waiting);
    let mut upload = Upload::endless(StreamBody::new(chained));
    assert!(upload.is_once() && !upload.is_kept());
    let live = upload.live().expect("it is held open");
    let mut body = upload.next().expect("one try");
    assert!(upload.next().is_none() && upload.live().is_none());
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    assert_eq!(live.moved(), 1);
    let reading = tokio::spawn(async move { body.frame().await });
    drop(live);
    assert!(reading.await.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn trailers_come_with_a_whole_download() {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(trailers)];
    let frames = frames.map(Ok::<_, BodyError>);
    let body = boxed(StreamBody::new(futures_util::stream::iter(frames)));
    let Ok(Download::Whole(bytes, Some(trailers))) = download(body, 8).await else {
        panic!("it is whole")
    };
    assert_eq!((bytes, trailers["grpc-status"].as_bytes()), ("abc".into(), &b"0"[..]));
}
