//! HTTP/1.1 on a plain socket, for what no client library would send: any framing, requests in one
//! write, heads in pieces, early ends. It reads answers strictly and interprets none.

use std::{future::Future, io, net::SocketAddr, pin::pin, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

use crate::{
    answer::Answer,
    case::{Call, Framing},
};

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One connection.
pub(crate) struct Wire {
    reader: Reader,
    writer: OwnedWriteHalf,
}

struct Reader {
    half: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(addr: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(addr).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (half, writer) = stream.into_split();
        Ok(Self { reader: Reader { half, buffer: Vec::new() }, writer })
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        patient(self.writer.write_all(bytes)).await
    }

    /// The next answer; `method` is its request's.
    pub(crate) async fn read(&mut self, method: &Method) -> Result<Answer, String> {
        patient(self.reader.answer(method)).await
    }

    /// Sends a request and reads its answer, which may come before all was sent.
    pub(crate) async fn exchange(&mut self, call: &Call) -> Result<Answer, String> {
        let Self { reader, writer } = self;
        let mut writing = pin!(send(writer, call));
        let mut reading = pin!(patient(reader.answer(&call.method)));
        let mut unsent = true;
        loop {
            tokio::select! {
                biased;
                answer = &mut reading => return answer,
                // A peer that refuses early closes its side; its answer is what counts.
                _early = &mut writing, if unsent => unsent = false,
            }
        }
    }

    /// Whether the peer has closed the connection, now or soon.
    pub(crate) async fn ends(&mut self) -> bool {
        let mut byte = [0];
        matches!(timeout(PATIENCE, self.reader.half.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
    }
}

async fn patient<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    let outcome = timeout(PATIENCE, work).await.map_err(|_| "no answer in time".to_owned())?;
    outcome.map_err(|error| error.to_string())
}

async fn send(writer: &mut OwnedWriteHalf, call: &Call) -> io::Result<()> {
    match call.framing {
        Framing::Length if call.body.len() > 1 << 16 => {
            writer.write_all(&head(call)).await?;
            writer.write_all(&call.body).await
        }
        Framing::Length => writer.write_all(&bytes(call)).await,
        Framing::Chunked(size) => {
            writer.write_all(&head(call)).await?;
            for chunk in call.body.chunks(size) {
                let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
                framed.extend_from_slice(chunk);
                framed.extend_from_slice(b"\r\n");
                writer.write_all(&framed).await?;
            }
            writer.write_all(b"0\r\n\r\n").await
        }
    }
}

/// A request's head as it goes on the wire.
pub(crate) fn head(call: &Call) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nhost: test\r\n", call.method, call.path);
    for (name, value) in &call.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match call.framing {
        Framing::Chunked(_) => head.push_str("transfer-encoding: chunked\r\n"),
        Framing::Length if call.body.is_empty() && call.method != Method::POST => {}
        Framing::Length => head.push_str(&format!("content-length: {}\r\n", call.body.len())),
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// A request of known length as it goes on the wire.
pub(crate) fn bytes(call: &Call) -> Vec<u8> {
    let mut bytes = head(call);
    bytes.extend_from_slice(&call.body);
    bytes
}

impl Reader {
    async fn more(&mut self) -> io::Result<usize> {
        self.half.read_buf(&mut self.buffer).await
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return String::from_utf8(line[..at].to_vec()).map_err(io::Error::other);
            }
            if self.more().await? == 0 {
                return Err(io::Error::other("the connection ended"));
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Bytes> {
        self.buffer.reserve(length.saturating_sub(self.buffer.len()));
        while self.buffer.len() < length {
            if self.more().await? == 0 {
                let got = self.buffer.len();
                return Err(io::Error::other(format!("{got} of {length} bytes of a body")));
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest).into())
    }

    async fn answer(&mut self, method: &Method) -> io::Result<Answer> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("status line '{line}'")))?;
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
            let value = HeaderValue::from_str(value.trim()).map_err(io::Error::other)?;
            headers.append(name, value);
        }
        let body = self.body(method, status, &headers).await?;
        Ok(Answer { status, headers, body })
    }

    async fn body(&mut self, method: &Method, status: u16, map: &HeaderMap) -> io::Result<Bytes> {
        if method == Method::HEAD || status < 200 || status == 204 || status == 304 {
            return Ok(Bytes::new());
        }
        if map.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            let mut body = Vec::new();
            loop {
                let line = self.line().await?;
                let size = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
                body.extend_from_slice(&self.exactly(size).await?);
                if !self.line().await?.is_empty() {
                    return Err(io::Error::other("a chunk without its end"));
                }
                if size == 0 {
                    return Ok(body.into());
                }
            }
        }
        if let Some(length) = map.get("content-length") {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            let length = length.ok_or_else(|| io::Error::other("content-length is no number"))?;
            return self.exactly(length).await;
        }
        while self.more().await? > 0 {}
        Ok(std::mem::take(&mut self.buffer).into())
    }
}
