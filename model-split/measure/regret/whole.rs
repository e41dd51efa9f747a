//! The contenders of each cell end to end: the front runs on an edge made slow, its frame goes
//! through the link emulator, another thread reads it, runs the tail and answers. This is what the
//! sums of the table are held against; pictures are left out, whose bytes differ from one to the
//! next.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, ensure};
use midspan_load::emulator::{Link, LinkSpec};
use midspan_runtime::{Executor, Session, SessionOptions, Tensor};
use midspan_split::candidate::{Candidate, InputForm, WirePrecision};
use midspan_split::codec::{self, Codec, Frame, Precision, Scale};
use midspan_split::cut::{Types, extract};
use midspan_split::plan::regret::Measured;
use midspan_split::profile::{Slow, Slowdown, Timing};
use midspan_split::{SplitId, onnx, samples};

/// Of each cell, beside the whole model on either side.
const CONTENDERS: usize = 3;

/// A candidate ready to run on both sides.
struct Ready {
    index: usize,
    front: Option<Slow<Session>>,
    precision: Precision,
    codec: Codec,
    tail: Option<(String, Session)>,
    /// Whether a body goes to the other side: for the whole model here none does.
    sends: bool,
    us: Vec<f64>,
}

/// Runs the contenders of every cell and notes what they took.
pub(crate) fn contenders(
    measured: &mut Measured,
    model: &[u8],
    runs: usize,
    answer: usize,
) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for entry in &mut measured.candidates {
        entry.whole_us = vec![None; measured.cells.len()];
    }
    for cell in 0..measured.cells.len() {
        let (link, slowdown) = (&measured.cells[cell].link, measured.cells[cell].slowdown);
        let spec: LinkSpec = link.parse()?;
        let mut ready = Vec::new();
        for index in chosen(measured, cell) {
            let candidate = &measured.candidates[index].candidate;
            ready.push(prepare(index, candidate, model, slowdown)?);
        }
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let target = listener.local_addr()?;
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let relay = runtime.block_on(Link::bind(here, target, spec))?;
        let row = input(model)?;
        let mut tails: Vec<Option<(String, Session)>> =
            ready.iter_mut().map(|ready| ready.tail.take()).collect();
        let codecs: Vec<Codec> = ready.iter().map(|ready| ready.codec.clone()).collect();
        std::thread::scope(|scope| -> anyhow::Result<()> {
            let server = scope.spawn(|| serve(&listener, &mut tails, &codecs, answer));
            let mut stream = TcpStream::connect(relay.local_addr())?;
            stream.set_nodelay(true)?;
            for run in 0..=runs {
                for (which, ready) in ready.iter_mut().enumerate() {
                    let sends = ready.sends;
                    let start = Instant::now();
                    ask(ready, &row, sends.then_some((&mut stream, which)), answer)?;
                    if run > 0 {
                        ready.us.push(start.elapsed().as_secs_f64() * 1e6);
                    }
                }
            }
            drop(stream);
            server.join().map_err(|_| anyhow::anyhow!("the other side panicked"))?
        })?;
        runtime.block_on(relay.shutdown());
        for ready in ready {
            let timing = Timing::of(ready.us).context("no runs")?;
            measured.candidates[ready.index].whole_us[cell] = Some(timing.median_us.round());
        }
    }
    Ok(())
}

/// The best few that send an activation, and the whole model on either side.
fn chosen(measured: &Measured, cell: usize) -> Vec<usize> {
    let us = |index: usize| measured.candidates[index].us[cell].unwrap_or(f64::INFINITY);
    let all = 0..measured.candidates.len();
    let (mut splits, mut others) = (Vec::new(), Vec::new());
    for index in all.filter(|index| us(*index).is_finite()) {
        match &measured.candidates[index].candidate {
            Candidate::Activation { .. } => splits.push(index),
            Candidate::Local { .. } | Candidate::Input { form: InputForm::Tensor } => {
                others.push(index);
            }
            Candidate::Input { .. } | Candidate::Exit { .. } => {}
        }
    }
    splits.sort_by(|a, b| us(*a).total_cmp(&us(*b)));
    splits.truncate(CONTENDERS);
    splits.extend(others);
    splits
}

fn input(model: &[u8]) -> anyhow::Result<(String, Tensor)> {
    let whole = Session::load(model, &SessionOptions::default(), None)?;
    let mut row = samples::random(whole.inputs(), 1, 1)?.swap_remove(0).inputs;
    ensure!(row.len() == 1, "only models of one input are run end to end");
    Ok(row.swap_remove(0))
}

fn prepare(
    index: usize,
    candidate: &Candidate,
    model: &[u8],
    slowdown: f64,
) -> anyhow::Result<Ready> {
    let slowdown = Slowdown::new(slowdown).context("a slowdown out of range")?;
    let load = |bytes: &[u8]| Session::load(bytes, &SessionOptions::default(), None);
    let (name, row) = input(model)?;
    let plain = |row: &Tensor| {
        let shape = row.shape().get(1..).unwrap_or_default().to_vec();
        let values = row.f32s().ok();
        let scale = values.and_then(|values| {
            let lo = values.iter().copied().fold(f32::INFINITY, f32::min);
            let hi = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            Scale::new(lo, hi)
        });
        Codec::new(row.element(), shape, scale).context("rows that have no codec")
    };
    let mut ready = Ready {
        index,
        front: None,
        precision: Precision::Raw,
        codec: plain(&row)?,
        tail: None,
        sends: !matches!(candidate, Candidate::Local { .. }),
        us: vec![],
    };
    match candidate {
        Candidate::Local { .. } => ready.front = Some(Slow::new(load(model)?, slowdown)),
        Candidate::Input { .. } => ready.tail = Some((name, load(model)?)),
        Candidate::Exit { .. } => {}
        Candidate::Activation { cut, precision, .. } => {
            let decoded = onnx::decode(model.to_vec().into())?;
            let types = Types::infer(&decoded)?;
            let last = decoded.graph.as_ref().and_then(|graph| graph.output.last());
            let last = last.context("a model without outputs")?.name().to_owned();
            let front =
                extract(&decoded, &types, std::slice::from_ref(&name), std::slice::from_ref(cut))?;
            let tail = extract(&decoded, &types, std::slice::from_ref(cut), &[last])?;
            let mut front = load(&onnx::encode(&front))?;
            ready.codec = plain(&front.run(&[(name.as_str(), row.view())])?[0])?;
            ready.front = Some(Slow::new(front, slowdown));
            ready.tail = Some((cut.clone(), load(&onnx::encode(&tail))?));
            ready.precision = match precision {
                WirePrecision::Raw => Precision::Raw,
                WirePrecision::Half => Precision::Half,
                WirePrecision::Bits(bits) => Precision::Bits(*bits),
            };
        }
    }
    Ok(ready)
}

/// One request from its input to its answer.
fn ask(
    ready: &mut Ready,
    (name, row): &(String, Tensor),
    stream: Option<(&mut TcpStream, usize)>,
    answer: usize,
) -> anyhow::Result<()> {
    let crossing = match &mut ready.front {
        Some(front) => front.run(&[(name.as_str(), row.view())])?.swap_remove(0),
        None => row.clone(),
    };
    let Some((stream, which)) = stream else { return Ok(()) };
    let frame = codec::encode(&crossing.view(), &ready.codec, ready.precision, SplitId([0; 32]))?;
    let mut request = Vec::with_capacity(crate::HEAD + frame.len());
    request.extend_from_slice(&u32::try_from(frame.len())?.to_be_bytes());
    request.extend_from_slice(&u32::try_from(which)?.to_be_bytes());
    request.extend_from_slice(&frame);
    stream.write_all(&request)?;
    let mut back = vec![0; crate::HEAD + answer];
    stream.read_exact(&mut back)?;
    Ok(())
}

/// Answers until the other side hangs up.
fn serve(
    listener: &TcpListener,
    tails: &mut [Option<(String, Session)>],
    codecs: &[Codec],
    answer: usize,
) -> anyhow::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let (mut head, mut body) = ([0; crate::HEAD], Vec::new());
    while stream.read_exact(&mut head).is_ok() {
        let [a, b, c, d, e, f, g, h] = head;
        body.resize(u32::from_be_bytes([a, b, c, d]) as usize, 0);
        let which = u32::from_be_bytes([e, f, g, h]) as usize;
        stream.read_exact(&mut body)?;
        let rows = Frame::parse(&body)?.decode(&codecs[which])?;
        let (name, tail) = tails[which].as_mut().context("nothing to run")?;
        let answers = tail.run(&[(name.as_str(), rows.view())])?;
        let mut back = vec![0; crate::HEAD];
        back.extend_from_slice(answers[answers.len() - 1].bytes());
        back.resize(crate::HEAD + answer, 0);
        stream.write_all(&back)?;
    }
    Ok(())
}
