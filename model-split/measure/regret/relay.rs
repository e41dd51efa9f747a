//! How long bodies take through the link emulator: a request of so many bytes and an answer, over
//! one open connection a size, all sizes at the same time, so that what disturbs the machine
//! disturbs all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Context;
use midspan_load::emulator::{Link, LinkSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::HEAD;

/// Sizes that are measured at once.
const AT_ONCE: usize = 16;
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The median time of an exchange with each size, microseconds.
pub(crate) fn transfers(
    link: &str,
    sizes: &[usize],
    answer: usize,
    runs: usize,
) -> anyhow::Result<BTreeMap<usize, f64>> {
    let spec: LinkSpec = link.parse()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(HERE).await?;
        let target = listener.local_addr()?;
        let mut server = JoinSet::new();
        server.spawn(serve(listener));
        let (mut times, mut tasks) = (BTreeMap::new(), JoinSet::new());
        let mut left = sizes.iter().copied();
        loop {
            while tasks.len() < AT_ONCE {
                let Some(size) = left.next() else { break };
                tasks.spawn(async move {
                    let link = Link::bind(HERE, target, spec).await?;
                    let us = exchanges(link.local_addr(), size, answer, runs).await?;
                    link.shutdown().await;
                    anyhow::Ok((size, us))
                });
            }
            let Some(done) = tasks.join_next().await else { break };
            let (size, us) = done??;
            times.insert(size, us);
        }
        server.shutdown().await;
        Ok(times)
    })
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        connections.spawn(answer(stream));
    }
}

/// Reads bodies and answers each, until the other side hangs up.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut body = Vec::new();
    loop {
        let size = stream.read_u32().await? as usize;
        let answer = stream.read_u32().await? as usize;
        body.resize(size, 0);
        stream.read_exact(&mut body).await?;
        stream.write_all(&vec![0; HEAD + answer]).await?;
    }
}

async fn exchanges(
    link: SocketAddr,
    size: usize,
    answer: usize,
    runs: usize,
) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(link).await?;
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(HEAD + size);
    request.extend_from_slice(&u32::try_from(size)?.to_be_bytes());
    request.extend_from_slice(&u32::try_from(answer)?.to_be_bytes());
    request.resize(HEAD + size, 7);
    let (mut times, mut back) = (Vec::new(), vec![0; HEAD + answer]);
    for run in 0..=runs {
        let start = Instant::now();
        stream.write_all(&request).await?;
        stream.read_exact(&mut back).await?;
        if run > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let timing = midspan_split::profile::Timing::of(times).context("no runs")?;
    Ok(timing.median_us)
}
