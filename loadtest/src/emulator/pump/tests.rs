//! One direction under paused time: arrival times, bandwidth, order, back-pressure, outages.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::{
    io::{DuplexStream, duplex},
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::*;

/// Paused time is exact up to the timer's resolution of a millisecond, rounded up.
const TICK: Duration = Duration::from_millis(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Line {
    lane: Arc<Lane>,
    state: Arc<watch::Sender<State>>,
    tasks: TaskTracker,
}

impl Line {
    fn new(spec: &str) -> Self {
        let now = Instant::now();
        let spec = spec.parse().unwrap();
        let state = State { spec, outage: Outage::None, epoch: 0, restored: now };
        Self {
            lane: Arc::new(Lane::new(Direction::Up, now)),
            state: Arc::new(watch::Sender::new(state)),
            tasks: TaskTracker::new(),
        }
    }

    /// A connection over the line: the sender's and the receiver's end.
    fn connect(&self, seed: u64) -> (DuplexStream, DuplexStream) {
        let (sender, mut reader) = duplex(1 << 10);
        let (mut writer, receiver) = duplex(1 << 10);
        let (lane, state) = (Arc::clone(&self.lane), self.state.subscribe());
        self.tasks.spawn(async move {
            let (source, target) = (End::default(), End::default());
            let pump = Pump::new(&lane, state, &source, &target, seed);
            pump.run(&mut reader, &mut writer).await
        });
        (sender, receiver)
    }

    fn outage(&self, outage: Outage) {
        self.state.send_modify(|state| {
            if outage == Outage::None {
                state.epoch += 1;
                state.restored = Instant::now();
                self.lane.restart(state.restored);
            }
            state.outage = outage;
        });
    }

    /// Sends `bytes` and the end of stream in the background.
    fn send(&self, mut sender: DuplexStream, bytes: Vec<u8>) {
        self.tasks.spawn(async move {
            sender.write_all(&bytes).await.unwrap();
            sender.shutdown().await.unwrap();
        });
    }
}

async fn read_all(mut receiver: DuplexStream) -> (Vec<u8>, Instant) {
    let mut bytes = Vec::new();
    receiver.read_to_end(&mut bytes).await.unwrap();
    (bytes, Instant::now())
}

fn assert_about(got: Duration, wanted: Duration) {
    assert!(got >= wanted && got <= wanted + 2 * TICK, "{got:?} for {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn each_byte_is_late_by_half_a_round_trip() {
    let line = Line::new("rtt=50ms");
    let (mut sender, mut receiver) = line.connect(0);
    for _ in 0..3 {
        let start = Instant::now();
        sender.write_all(b"x").await.unwrap();
        assert_eq!(receiver.read_u8().await.unwrap(), b'x');
        assert_about(start.elapsed(), ms(25));
    }
    assert_eq!(line.lane.bytes(), 3);
}

#[tokio::test(start_paused = true)]
async fn bandwidth_is_kept_and_delay_costs_no_throughput() {
    // 1 MB at 8 Mbps is one second, with a window of twice the bandwidth-delay product of 100 KB.
    let line = Line::new("up=8Mbps,rtt=100ms");
    let (sender, receiver) = line.connect(0);
    let start = Instant::now();
    line.send(sender, vec![7; 1_000_000]);
    let (bytes, end) = read_all(receiver).await;
    assert_eq!((bytes.len(), line.lane.bytes()), (1_000_000, 1_000_000));
    assert_about(end - start, ms(1050));
}

#[tokio::test(start_paused = true)]
async fn connections_share_the_bandwidth() {
    let line = Line::new("up=8Mbps");
    let start = Instant::now();
    let receivers = [0, 1].map(|seed| {
        let (sender, receiver) = line.connect(seed);
        line.send(sender, vec![7; 500_000]);
        receiver
    });
    let [one, other] = receivers.map(read_all);
    let ((_, one), (_, other)) = tokio::join!(one, other);
    // Together a second; neither is done much before the other.
    for end in [one, other] {
        assert!(end - start > ms(850) && end - start <= ms(1000) + 2 * TICK, "{:?}", end - start);
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_does_not_read_holds_the_sender_back() {
    let line = Line::new("up=8Mbps,rtt=20ms");
    let (mut sender, receiver) = line.connect(0);
    let all = vec![1; 1 << 20];
    assert!(timeout(ms(60_000), sender.write_all(&all)).await.is_err());
    let held = line.lane.bytes();
    assert!(((64 << 10)..(70 << 10)).contains(&held), "{held}");
    drop(sender);
    let (bytes, _) = read_all(receiver).await;
    assert_eq!(bytes.len() as u64, line.lane.bytes());
}

#[tokio::test(start_paused = true)]
async fn a_blackhole_delivers_nothing_and_then_everything() {
    let line = Line::new("up=8Mbps,rtt=40ms");
    let (mut sender, mut receiver) = line.connect(0);
    sender.write_all(&[1; 1000]).await.unwrap();
    tokio::time::advance(ms(5)).await;
    line.outage(Outage::Blackhole);
    sender.write_all(&[2; 1000]).await.unwrap();
    sender.shutdown().await.unwrap();
    let mut byte = [0];
    assert!(timeout(ms(30_000), receiver.read(&mut byte)).await.is_err());
    assert_eq!(line.lane.bytes(), 2000, "taken from the sender meanwhile");
    let restored = Instant::now();
    line.outage(Outage::None);
    let (bytes, end) = read_all(receiver).await;
    assert_eq!(bytes, [[1; 1000], [2; 1000]].concat());
    // All 2,000 bytes cross the line again: 2 ms, and half a round trip.
    assert_about(end - restored, ms(22));
}

#[tokio::test(start_paused = true)]
async fn a_new_spec_holds_for_what_is_sent_next() {
    let line = Line::new("rtt=50ms");
    let (mut sender, mut receiver) = line.connect(0);
    sender.write_all(b"a").await.unwrap();
    tokio::time::advance(ms(1)).await;
    line.state.send_modify(|state| state.spec = "none".parse().unwrap());
    let start = Instant::now();
    sender.write_all(b"b").await.unwrap();
    assert_eq!(receiver.read_u8().await.unwrap(), b'a');
    assert_eq!(receiver.read_u8().await.unwrap(), b'b', "order is kept although b was faster");
    assert!(start.elapsed() >= ms(23), "{:?}", start.elapsed());
    let start = Instant::now();
    sender.write_all(b"c").await.unwrap();
    assert_eq!(receiver.read_u8().await.unwrap(), b'c');
    assert!(start.elapsed() <= TICK);
}

/// Runs a pump between ends whose state is given, until it ends or an hour has passed.
async fn run_between(source: End, target: End, receiver_is_gone: bool) -> Option<io::Result<()>> {
    let line = Line::new("rtt=50ms");
    let (mut sender, mut reader) = duplex(64);
    let (mut writer, receiver) = duplex(64);
    sender.write_all(b"data").await.unwrap();
    sender.shutdown().await.unwrap();
    let receiver = (!receiver_is_gone).then_some(receiver);
    let pump = Pump::new(&line.lane, line.state.subscribe(), &source, &target, 0);
    let ended = timeout(ms(3_600_000), pump.run(&mut reader, &mut writer)).await.ok();
    if let Some(mut receiver) = receiver {
        let mut data = [0; 4];
        receiver.read_exact(&mut data).await.unwrap();
        assert_eq!(&data, b"data", "handed on before the end");
    }
    ended
}

fn end(broken: bool, drained: bool) -> End {
    End { broken: AtomicBool::new(broken), drained: AtomicBool::new(drained) }
}

#[tokio::test(start_paused = true)]
async fn an_end_of_stream_after_a_reset_is_a_reset() {
    // The kernel told the other direction's write of the reset and shows a plain end here.
    let ended = run_between(end(true, false), End::default(), false).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let ended = run_between(End::default(), End::default(), false).await.unwrap();
    assert!(ended.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_gone_is_reported_once_and_in_order() {
    // Nobody reads from the target any more: this direction has to report it, one delay later.
    let start = Instant::now();
    let ended = run_between(End::default(), end(false, true), true).await.unwrap();
    assert!(ended.is_err());
    assert_about(start.elapsed(), ms(50));
    // The other direction still reads from it, or has read the reset: it reports, in order.
    for target in [end(false, false), end(true, true)] {
        assert!(run_between(End::default(), target, true).await.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_arrive_once_in_order_whatever_the_chunks(
        chunks in proptest::collection::vec((1_usize..5000, 0_u64..20), 1..30),
        jitter in 0_u64..50,
        limited in any::<bool>(),
        outage_at in proptest::option::of(0_usize..30),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (sent, got, counted) = runtime.block_on(async move {
            let rate = if limited { "3Mbps" } else { "none" };
            let line = Line::new(&format!("up={rate},rtt=30ms,jitter={jitter}ms"));
            let (mut sender, receiver) = line.connect(seed);
            let (lane, tasks) = (Arc::clone(&line.lane), line.tasks.clone());
            // The pump ends with the line, whose other half goes to the sending task.
            let _keep = Arc::clone(&line.state);
            let total: usize = chunks.iter().map(|chunk| chunk.0).sum();
            let sent: Vec<u8> = (0..total).map(|n| (n * 31 % 251) as u8).collect();
            let bytes = sent.clone();
            tasks.spawn(async move {
                let mut rest = &bytes[..];
                for (index, (size, gap)) in chunks.into_iter().enumerate() {
                    let (chunk, next) = rest.split_at(size);
                    if outage_at == Some(index) {
                        line.outage(Outage::Blackhole);
                    }
                    // The outage ends whether or not the full line takes the chunk before.
                    let restore = async {
                        tokio::time::sleep(ms(gap)).await;
                        line.outage(Outage::None);
                    };
                    let (wrote, ()) = tokio::join!(sender.write_all(chunk), restore);
                    wrote.unwrap();
                    rest = next;
                }
            });
            // Under paused time a line that stands still would park the test for ever.
            let reading = tokio::time::timeout(ms(3_600_000), read_all(receiver)).await;
            let (got, _) = reading.expect("every byte arrives");
            (sent, got, lane.bytes())
        });
        prop_assert_eq!(counted, sent.len() as u64);
        prop_assert_eq!(sent, got);
    }
}
