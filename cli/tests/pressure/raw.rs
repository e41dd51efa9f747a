//! HTTP/1.1 by hand: a client that can stop anywhere in a head, a body or an answer.

use std::net::SocketAddr;

use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{in_time, meter::Meter};

/// Bytes that a body is sent and read in.
const CHUNK: usize = 64 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// One connection.
pub(crate) struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of a body taken so far, where it is taken in parts.
    taken: usize,
}

/// An answer read whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Whether it says that no further request is answered.
    pub(crate) fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close")
    }

    /// Its body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    /// In order: FIN.
    Fin,
    /// RST.
    Reset,
}

/// A connection whose buffers at this end are fixed, where they would grow to megabytes, so that
/// what disappears between two peers is what the process between them takes.
pub(crate) async fn connect(addr: SocketAddr) -> TcpStream {
    let stream = in_time("a connection", TcpStream::connect(addr)).await.expect("connected");
    stream.set_nodelay(true).expect("a socket");
    let socket = SockRef::from(&stream);
    socket.set_send_buffer_size(CHUNK).expect("a socket");
    socket.set_recv_buffer_size(CHUNK).expect("a socket");
    stream
}

/// The head of an inference with a body of `length` bytes for the stub's `script`.
pub(crate) fn head(script: &str, length: usize) -> String {
    format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\nx-script: {script}\r\n\
         content-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n"
    )
}

impl Raw {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = connect(addr).await;
        Self { stream, buffer: Vec::new(), taken: 0 }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sending = self.stream.write_all(bytes.as_ref());
        in_time("a request is taken", sending).await.expect("it is sent");
    }

    /// Sends to a peer that may have closed; whether it took everything.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        in_time("bytes are taken", self.stream.write_all(bytes.as_ref())).await.is_ok()
    }

    /// Sends `length` zeros, each step counted; waits as long as the peer does.
    pub(crate) async fn send_zeros(&mut self, length: usize, meter: &Meter) {
        let mut left = length;
        while left > 0 {
            let sent = self.stream.write(&ZEROS[..left.min(CHUNK)]).await.expect("it is sent");
            left -= sent;
            meter.add(sent);
        }
    }

    /// Reads more; whether there was any.
    async fn more(&mut self) -> bool {
        self.buffer.reserve(CHUNK);
        // A reset of a peer that closed before it read everything is an end too.
        in_time("bytes", self.stream.read_buf(&mut self.buffer)).await.is_ok_and(|read| read > 0)
    }

    /// Reads the head of an answer: status and text in lower case.
    pub(crate) async fn head(&mut self) -> Option<(u16, String)> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..at + 4).collect();
                let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
                return Some((status.unwrap_or_else(|| panic!("no status in {head}")), head));
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Reads one answer that tells its length; `None` when the peer closed instead.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let (status, head) = self.head().await?;
        let length = length(&head);
        while self.buffer.len() < length {
            assert!(self.more().await, "{status}: the answer ends after {}", self.buffer.len());
        }
        Some(Answer { status, head, body: self.buffer.drain(..length).collect() })
    }

    /// Takes a few bytes of a body; whether there were any.
    pub(crate) async fn bite(&mut self) -> bool {
        const BITE: usize = 512;
        if self.buffer.len() < BITE && !self.more().await {
            return false;
        }
        let size = self.buffer.len().min(BITE);
        self.buffer.drain(..size);
        self.taken += size;
        true
    }

    /// Reads and drops what is left of a body of `length` bytes; whether all came.
    pub(crate) async fn drained(mut self, length: usize) -> bool {
        loop {
            self.taken += self.buffer.len();
            self.buffer.clear();
            if self.taken >= length || !self.more().await {
                return self.taken == length;
            }
        }
    }

    /// One request without a body.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        self.answer().await.expect("an answer")
    }

    /// The serving thread answers.
    pub(crate) async fn live(&mut self) {
        assert_eq!(self.get("/v2/health/live").await.status, 200);
    }

    /// Whether the peer closes without a further byte.
    pub(crate) async fn ended(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }

    /// Goes away.
    pub(crate) fn leave(self, how: Leave) {
        if matches!(how, Leave::Reset) {
            self.stream.set_zero_linger().expect("a socket");
        }
    }
}

/// The length that a head promises; nothing for one without.
pub(crate) fn length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
