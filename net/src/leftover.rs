//! What is left of a request's body when the request was answered without it. A short rest is read
//! away, so that the connection can be used again; any other ends the connection, and the answer
//! says so. HTTP/2 resets one stream instead and needs neither.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Version, header, request::Parts};
use http_body_util::BodyExt;

/// Longest rest that is read away, bytes.
const SHORT: u64 = 64 << 10;

/// Longest time that it may take to arrive.
const PATIENCE: Duration = Duration::from_secs(1);

/// Deals with the unread `body` of the request with this head; `answer` holds the headers of its
/// answer, which has not been sent yet.
pub async fn settle<B>(head: &Parts, mut body: B, answer: &mut HeaderMap)
where
    B: http_body::Body + Unpin,
{
    if head.version > Version::HTTP_11 || body.is_end_stream() {
        return;
    }
    let short = body.size_hint().upper().is_some_and(|length| length <= SHORT);
    // A client that waits to be asked for its body has not sent it, and is not asked.
    if short && !head.headers.contains_key(header::EXPECT) {
        let drained = async {
            while let Some(frame) = body.frame().await {
                if frame.is_err() {
                    return false;
                }
            }
            true
        };
        if tokio::time::timeout(PATIENCE, drained).await == Ok(true) {
            return;
        }
    }
    answer.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::{BodyError, body::boxed};

    async fn closes(request: Request<()>, body: crate::Body) -> bool {
        let mut answer = HeaderMap::new();
        settle(&request.into_parts().0, body, &mut answer).await;
        answer.get(header::CONNECTION).is_some_and(|value| value == "close")
    }

    fn request() -> Request<()> {
        Request::new(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_rest_is_read_away_and_any_other_closes() {
        let of = |length| boxed(Full::new(Bytes::from(vec![7; length])));
        let endless =
            || boxed(StreamBody::new(futures_util::stream::pending::<Result<_, BodyError>>()));
        assert!(!closes(request(), of(0)).await);
        assert!(!closes(request(), of(64 << 10)).await);
        assert!(closes(request(), of((64 << 10) + 1)).await);
        assert!(closes(request(), endless()).await, "its length is not known");
        let mut slow = request();
        slow.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        assert!(closes(slow, of(1)).await, "nobody may ask for it now");
        let mut h2 = request();
        *h2.version_mut() = Version::HTTP_2;
        assert!(!closes(h2, endless()).await);
    }
}
