//! Static scales of a cut, measured from the activations of samples: the range onto which its
//! values are quantised, one for the whole tensor or one for each channel. Pure but for
//! [`observe()`], which runs the front of a model. It must not judge what a scale does to answers:
//! see `crate::fidelity`.
//!
//! A narrow range has small steps and cuts the largest values off; a wide one does the opposite.
//! [`Clip::LeastError`] takes the range of least mean squared error at the given bits, with
//! `step^2 / 12` for each value inside (the error of even rounding) and the squared distance from
//! the range for each value outside.

mod histogram;
mod observe;
mod search;

use crate::codec::Scale;
use histogram::Histogram;
pub use observe::{ObserveError, fill, observe};

/// Most channels that are told apart.
const MOST_CHANNELS: usize = 4096;

/// Which values share a scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// All.
    #[default]
    Tensor,
    /// Those of a channel: the second dimension of the tensor.
    Channel,
}

/// Which values lie outside of the range, and become its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clip {
    /// None of those seen.
    #[default]
    Nothing,
    /// At most this share of the values on each side, 0 to 0.5.
    Tails(f64),
    /// Those whose loss is outweighed by the smaller steps.
    LeastError,
}

/// By how much of its width a range is widened on each side: what is quantised later may lie
/// outside of what was seen, the more so where few values were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Headroom(f64);

impl Headroom {
    /// A share of the width, 0 to 4.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=4.0).contains(&share).then_some(Self(share))
    }
}

/// How scales are made of what was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    /// Which values share one.
    pub unit: Unit,
    /// Which values lie outside.
    pub clip: Clip,
    /// Room for what was not seen.
    pub headroom: Headroom,
}

/// Why there is no scale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// No finite value was seen.
    #[error("no finite value was seen")]
    Empty,
    /// Values so large that their range has no width in `f32`.
    #[error("values from {lo} to {hi} make no range")]
    Range {
        /// Least value.
        lo: String,
        /// Largest value.
        hi: String,
    },
    /// A scale for each channel of a tensor that has none, or too many of them.
    #[error(
        "scales for each channel need a tensor of [rows, channels, ...] with at most \
         {MOST_CHANNELS} channels"
    )]
    Channels,
}

/// Values of one tensor, as they were seen: a histogram for each channel.
#[derive(Clone, Debug)]
pub struct Observed {
    /// One where channels are not told apart.
    channels: Vec<Histogram>,
}

impl Observed {
    /// Nothing yet, of a tensor whose rows have this shape.
    pub fn new(row_shape: &[usize]) -> Self {
        let channels = match row_shape {
            [channels, _, ..] if (1..=MOST_CHANNELS).contains(channels) => *channels,
            _ => 1,
        };
        Self { channels: vec![Histogram::new(); channels] }
    }

    /// Adds the values of whole rows.
    pub fn add(&mut self, rows: &[f32], row_elements: usize) {
        for row in rows.chunks(row_elements.max(1)) {
            let channel = row.len().div_ceil(self.channels.len()).max(1);
            for (histogram, values) in self.channels.iter_mut().zip(row.chunks(channel)) {
                histogram.add(values);
            }
        }
    }

    /// The scales for these bits: one, or one for each channel. A channel without values has the
    /// scale of the tensor.
    ///
    /// # Errors
    /// When no finite value was seen, their range has no width in `f32`, or channels are asked for
    /// and not told apart.
    pub fn scales(&self, fit: Fit, bits: u8) -> Result<Vec<Scale>, ScaleError> {
        let mut all = Histogram::new();
        self.channels.iter().for_each(|channel| all.merge(channel));
        let tensor = scale(&all, fit, bits)?;
        if fit.unit == Unit::Tensor {
            return Ok(vec![tensor]);
        }
        if self.channels.len() < 2 {
            return Err(ScaleError::Channels);
        }
        let of = |channel| match scale(channel, fit, bits) {
            Err(ScaleError::Empty) => Ok(tensor),
            scale => scale,
        };
        self.channels.iter().map(of).collect()
    }
}

fn scale(values: &Histogram, fit: Fit, bits: u8) -> Result<Scale, ScaleError> {
    let range = match fit.clip {
        Clip::Nothing => values.bounds(),
        Clip::Tails(share) => values.within(share),
        Clip::LeastError => search::least_error(values, bits),
    };
    let (lo, hi) = range.ok_or(ScaleError::Empty)?;
    let Headroom(share) = fit.headroom;
    let room = ((f64::from(hi) - f64::from(lo)) * share) as f32;
    let (lo, hi) = (lo - room, hi + room);
    // A single value is met exactly by the lower end of a range that starts at it.
    let beside = lo + (lo.abs() / 1024.0).max(1.0 / 1024.0);
    let found = if lo < hi { Scale::new(lo, hi) } else { None };
    let found = found.or_else(|| Scale::new(lo, beside).filter(|scale| scale.hi() >= hi));
    found.ok_or_else(|| ScaleError::Range { lo: lo.to_string(), hi: hi.to_string() })
}

#[cfg(test)]
mod tests;
