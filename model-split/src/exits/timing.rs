//! How much longer a stage runs with a head in it. Stages with and without heads take turns, so
//! that what else the machine does falls on all of them alike; the median of the differences within
//! a turn counts. It must not choose.
//!
//! What counts is the time of a row among eight. On one row alone, what ONNX Runtime takes for every
//! node and output, whatever these compute, hides what a head computes; it is told apart.

use std::time::{Duration, Instant};

use midspan_runtime::{
    Dim, Executor, LoadError, RunError, Session, SessionOptions, Tensor, TensorRef,
};

/// Rows of a run, where the model takes more than one.
const ROWS: usize = 8;
/// Turns: at least and at most, and how long to go on in between.
const TURNS: (usize, usize) = (40, 600);
const PATIENCE: Duration = Duration::from_millis(1000);
const WARM_UP: usize = 5;

/// Median times in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    /// Of a row among eight, in the stage without a head.
    pub(super) plain: f64,
    /// What each head adds to that; noise may make it negative.
    pub(super) added: Vec<f64>,
    /// What each head adds to a run of one row.
    pub(super) added_alone: Vec<f64>,
}

/// Why nothing was timed.
#[derive(Debug, thiserror::Error)]
pub enum TimingError {
    /// A stage with a head in it does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It does not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Times `plain` and each of `merged`, models of the same inputs, on a row.
pub(super) fn measure(
    plain: &[u8],
    merged: &[Vec<u8>],
    given: &[(String, Tensor)],
) -> Result<Times, TimingError> {
    let load = |model: &[u8]| Session::load(model, &SessionOptions::default(), None);
    let mut sessions = vec![load(plain)?];
    for model in merged {
        sessions.push(load(model)?);
    }
    let reads = sessions[0].inputs().to_vec();
    let spec = |name: &str| reads.iter().find(|spec| spec.name == name);
    let alone: Vec<(String, Tensor)> =
        given.iter().filter(|(name, _)| spec(name).is_some()).cloned().collect();
    let together = alone.iter().map(|(name, tensor)| {
        let open = matches!(spec(name)?.dims.first(), Some(Dim::Symbolic(_)));
        Some((name.clone(), open.then(|| repeated(tensor))??))
    });
    let together: Option<Vec<(String, Tensor)>> = together.collect();
    let (plain_alone, added_alone) = turns(&mut sessions, &alone)?;
    let Some(together) = together else {
        return Ok(Times { plain: plain_alone, added: added_alone.clone(), added_alone });
    };
    let (plain, added) = turns(&mut sessions, &together)?;
    let a_row = |time: f64| time / ROWS as f64;
    let added = added.into_iter().map(a_row).collect();
    Ok(Times { plain: a_row(plain), added, added_alone })
}

/// The one row of a tensor, eight times; none where its first dimension is not one of rows.
fn repeated(tensor: &Tensor) -> Option<Tensor> {
    let [1, rest @ ..] = tensor.shape() else { return None };
    let shape = [&[ROWS], rest].concat();
    Tensor::new(tensor.element(), shape, tensor.bytes().repeat(ROWS)).ok()
}

/// The median time of the first session, and of what the others take longer.
fn turns(
    sessions: &mut [Session],
    given: &[(String, Tensor)],
) -> Result<(f64, Vec<f64>), RunError> {
    let inputs: Vec<(&str, TensorRef<'_>)> =
        given.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    let once = |session: &mut Session| -> Result<f64, RunError> {
        let start = Instant::now();
        session.run(&inputs)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    for session in &mut *sessions {
        for _ in 0..WARM_UP {
            once(session)?;
        }
    }
    let count = sessions.len();
    let (mut plain, mut added) = (Vec::new(), vec![Vec::new(); count - 1]);
    let begun = Instant::now();
    for turn in 0..TURNS.1 {
        if turn >= TURNS.0 && begun.elapsed() > PATIENCE {
            break;
        }
        let mut times = vec![0.0; count];
        // Each begins as often as the others: the first finds the caches as the last left them.
        for step in 0..count {
            let which = (turn + step) % count;
            times[which] = once(&mut sessions[which])?;
        }
        plain.push(times[0]);
        for (added, time) in added.iter_mut().zip(&times[1..]) {
            added.push(time - times[0]);
        }
    }
    Ok((median(plain), added.into_iter().map(median).collect()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
