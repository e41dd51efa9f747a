//! A server's patience under paused time, over a pipe of a few bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const PATIENCE: Patience =
    Patience { stall: Duration::from_secs(60), linger: Duration::from_secs(5) };

fn pipe(size: usize) -> (Socket<DuplexStream>, DuplexStream, Exchange) {
    let (ours, theirs) = duplex(size);
    let exchange = Exchange::default();
    (Socket::new(ours, PATIENCE, exchange.clone()), theirs, exchange)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_takes_fails_after_the_stall() {
    let (mut socket, _theirs, _) = pipe(8);
    let before = Instant::now();
    let error = socket.write_all(&[0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("60s"), "{error}");
    assert_eq!(before.elapsed(), PATIENCE.stall);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_served_while_it_reads() {
    let (mut socket, mut theirs, _) = pipe(8);
    let reading = async {
        let mut piece = [0; 8];
        for _ in 0..10 {
            tokio::time::sleep(PATIENCE.stall - Duration::from_millis(1)).await;
            theirs.read_exact(&mut piece).await.unwrap();
        }
    };
    let writing = async { socket.write_all(&[0; 80]).await.unwrap() };
    tokio::join!(reading, writing);
    // A pause in which nothing is written does not count.
    tokio::time::sleep(2 * PATIENCE.stall).await;
    let mut piece = [0; 8];
    let ((), read) = tokio::join!(
        async { socket.write_all(&[1; 8]).await.unwrap() },
        theirs.read_exact(&mut piece)
    );
    read.unwrap();
    assert_eq!(piece, [1; 8]);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_only_when_told_to_and_not_for_ever() {
    let (mut socket, _theirs, exchange) = pipe(8);
    let before = Instant::now();
    socket.shutdown().await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);

    exchange.set_linger(true);
    socket.shutdown().await.unwrap();
    assert_eq!(before.elapsed(), PATIENCE.linger);
}

#[tokio::test(start_paused = true)]
async fn after_the_end_the_peer_can_send_until_it_ends_too() {
    let (mut socket, mut theirs, exchange) = pipe(8);
    exchange.set_linger(true);
    let before = Instant::now();
    let sending = async {
        theirs.write_all(&[0; 1 << 20]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(theirs);
    };
    let (ended, ()) = tokio::join!(socket.shutdown(), sending);
    ended.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(1));
}
