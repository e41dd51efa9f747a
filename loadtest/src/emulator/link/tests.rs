//! Real sockets on loopback: half-close, resets, refusal, counters, the end of a link.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const ANY: &str = "127.0.0.1:0";

struct Site {
    listener: TcpListener,
    link: Link,
}

impl Site {
    async fn new(spec: &str) -> Self {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let target = listener.local_addr().unwrap();
        let link = Link::bind(ANY.parse().unwrap(), target, spec.parse().unwrap()).await.unwrap();
        Self { listener, link }
    }

    /// Both ends of a new connection over the link.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.link.local_addr()).await.unwrap();
        let (server, _) = self.listener.accept().await.unwrap();
        (client, server)
    }
}

async fn read_error(stream: &mut TcpStream) -> ErrorKind {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap_err().kind()
}

#[tokio::test]
async fn half_close_follows_the_data_and_counters_are_exact() {
    let site = Site::new("up=80Mbps,rtt=4ms,jitter=1ms").await;
    let (mut client, mut server) = site.connect().await;
    let (request, reply) = (vec![5; 100_000], vec![6; 12_345]);
    let start = Instant::now();
    let (mut got_request, mut got_reply) = (Vec::new(), Vec::new());
    tokio::join!(
        async {
            client.write_all(&request).await.unwrap();
            client.shutdown().await.unwrap();
            client.read_to_end(&mut got_reply).await.unwrap();
        },
        async {
            server.read_to_end(&mut got_request).await.unwrap();
            assert_eq!(site.link.counters().active, 1);
            server.write_all(&reply).await.unwrap();
            server.shutdown().await.unwrap();
        }
    );
    // 10 ms on the line, 2 ms each way.
    assert!(start.elapsed() >= Duration::from_millis(14), "{:?}", start.elapsed());
    assert!(got_request == request && got_reply == reply);
    let Counters { up_bytes, down_bytes, connections, .. } = site.link.counters();
    assert_eq!((up_bytes, down_bytes, connections), (100_000, 12_345, 1));
    let status = site.link.status("edge-a");
    assert_eq!((status.up_bytes, status.down_bytes), (100_000, 12_345));
    site.link.shutdown().await;
}

#[tokio::test]
async fn a_reset_is_passed_on_in_both_directions() {
    let site = Site::new("rtt=2ms").await;
    for client_resets in [true, false] {
        let (client, server) = site.connect().await;
        let (mut resets, mut sees) =
            if client_resets { (client, server) } else { (server, client) };
        resets.write_all(b"last words").await.unwrap();
        let mut words = [0; 10];
        sees.read_exact(&mut words).await.unwrap();
        assert_eq!(&words, b"last words");
        resets.set_zero_linger().unwrap();
        drop(resets);
        assert_eq!(read_error(&mut sees).await, ErrorKind::ConnectionReset);
    }
    site.link.shutdown().await;
}

#[tokio::test]
async fn a_reset_under_traffic_reaches_the_other_side() {
    let site = Site::new("rtt=2ms").await;
    let (mut client, mut server) = site.connect().await;
    client.write_all(b"go").await.unwrap();
    let mut go = [0; 2];
    server.read_exact(&mut go).await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    // The writes fail in the link or here; in the end the server must see more than silence.
    let flood = vec![0; 64 << 10];
    let error = loop {
        if let Err(error) = server.write_all(&flood).await {
            break error.kind();
        }
    };
    assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    site.link.shutdown().await;
}

#[tokio::test]
async fn a_target_that_refuses_resets_the_client() {
    let site = Site::new("none").await;
    let address = site.link.local_addr();
    drop(site.listener);
    let mut client = TcpStream::connect(address).await.unwrap();
    assert_eq!(read_error(&mut client).await, ErrorKind::ConnectionReset);
    site.link.shutdown().await;
}

#[tokio::test]
async fn refusal_resets_old_and_new_connections_until_it_ends() {
    let site = Site::new("none").await;
    let (mut client, mut server) = site.connect().await;
    // The relay's own connect has returned once a byte came through.
    client.write_all(b"!").await.unwrap();
    server.read_exact(&mut [0]).await.unwrap();
    site.link.set_outage(Outage::Refuse);
    assert_eq!(read_error(&mut client).await, ErrorKind::ConnectionReset);
    assert_eq!(read_error(&mut server).await, ErrorKind::ConnectionReset);
    let mut refused = TcpStream::connect(site.link.local_addr()).await.unwrap();
    assert_eq!(read_error(&mut refused).await, ErrorKind::ConnectionReset);
    site.link.set_outage(Outage::None);
    let (mut client, mut server) = site.connect().await;
    client.write_all(b"back").await.unwrap();
    let mut back = [0; 4];
    server.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"back");
    site.link.shutdown().await;
}

#[tokio::test]
async fn a_blackhole_keeps_old_connections_and_mutes_new_ones() {
    let site = Site::new("none").await;
    let (mut old, mut old_server) = site.connect().await;
    site.link.set_outage(Outage::Blackhole);
    old.write_all(b"old").await.unwrap();
    let mut new = TcpStream::connect(site.link.local_addr()).await.unwrap();
    new.write_all(b"new").await.unwrap();
    // A second link in the same runtime shows that time and sockets go on meanwhile.
    let other = Site::new("none").await;
    let (mut ping, mut pong) = other.connect().await;
    let mut byte = [0; 3];
    for _ in 0..50 {
        ping.write_all(b"!").await.unwrap();
        pong.read_exact(&mut byte[..1]).await.unwrap();
    }
    assert_eq!(site.link.counters().connections, 1, "the new one waits in the backlog");
    let silent = old_server.try_read(&mut byte).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::WouldBlock);

    site.link.set_outage(Outage::None);
    old_server.read_exact(&mut byte).await.unwrap();
    assert_eq!(&byte, b"old");
    let (mut new_server, _) = site.listener.accept().await.unwrap();
    new_server.read_exact(&mut byte).await.unwrap();
    assert_eq!(&byte, b"new");
    site.link.shutdown().await;
    other.link.shutdown().await;
}

#[tokio::test]
async fn the_end_of_a_link_closes_its_sockets() {
    for shut in [true, false] {
        let site = Site::new("none").await;
        let (mut client, mut server) = site.connect().await;
        let address = site.link.local_addr();
        if shut {
            site.link.shutdown().await;
            let error = TcpStream::connect(address).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        } else {
            drop(site.link);
        }
        for stream in [&mut client, &mut server] {
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        }
    }
}
