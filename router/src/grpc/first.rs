//! Reading as much of a call's body as its first message needs to say its model, and no more: the
//! rest of it, and of a stream what the app will send later, stays where it is.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use midspan_protocol::{
    ModelName,
    grpc::peek::{Peek, PeekError, Progress},
};

use crate::{error::RouteError, replay::Prefix};

/// A body whose beginning has been read.
pub(super) struct Begun<B> {
    prefix: Option<Bytes>,
    rest: B,
}

/// The model of the first message, and the body as it was.
pub(super) async fn read<B>(
    mut body: B,
    mut peek: Peek,
) -> Result<(ModelName, Begun<B>), RouteError>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut prefix = Prefix::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| RouteError::ClientBody(error.into().to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let progress = peek.push(&data)?;
        prefix.push(data);
        if let Progress::Known(model) = progress {
            return Ok((model, Begun { prefix: Some(prefix.into_bytes()), rest: body }));
        }
    }
    Err(PeekError::CutShort.into())
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Begun<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.prefix.take() {
            Some(prefix) => Poll::Ready(Some(Ok(Frame::data(prefix)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        crate::replay::after(self.prefix.as_ref(), &self.rest.size_hint())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use midspan_protocol::grpc::{
        method::GrpcMethod,
        peek::{Coding, frame},
    };

    use super::*;

    #[tokio::test]
    async fn what_was_read_comes_again_and_no_more_is_taken() {
        let message = frame(&[0x0a, 1, b'm', 0x12, 1, b'7']);
        let frames: Vec<_> = message.chunks(2).map(Bytes::copy_from_slice).collect();
        let count = frames.len();
        let later = [Bytes::from_static(b"later"), Bytes::from_static(b"still later")];
        let frames =
            frames.into_iter().chain(later).map(|data| Ok::<_, PeekError>(Frame::data(data)));
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let fields = GrpcMethod::ModelStreamInfer.fields().unwrap();
        let (model, begun) = read(body, Peek::new(fields, Coding::Identity, 100)).await.unwrap();
        assert_eq!(model.to_string(), "m version 7");
        assert!(count > 1 && begun.prefix.as_ref().is_some_and(|prefix| *prefix == message));
        let all = begun.collect().await.unwrap().to_bytes();
        assert_eq!(all, [&message[..], b"laterstill later"].concat());
    }

    #[tokio::test]
    async fn a_body_without_a_message_is_refused() {
        let fields = GrpcMethod::ModelInfer.fields().unwrap();
        let peek = Peek::new(fields, Coding::Identity, 100);
        let body = http_body_util::Full::new(Bytes::from_static(&[0, 0, 0]));
        let error = read(body, peek).await.err().unwrap();
        assert!(matches!(error, RouteError::Message(PeekError::CutShort)), "{error}");
    }
}
