//! Resizing of 8-bit images, bit for bit as Pillow 13 does it: antialiased filters, weights in
//! 22-bit fixed point, one direction after the other and rounded to 8 bits in between. Which comes
//! first can change the last bit: see [`columns_first`]. Pure.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// How neighbouring pixels are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// The pixel that the middle of the target's pixel falls into.
    Nearest,
    /// The mean of the pixels below the target's pixel.
    Box,
    /// A triangle over one pixel to each side.
    Bilinear,
    /// A raised cosine times a sinc over one pixel to each side.
    Hamming,
    /// A cubic with a = -0.5 over two pixels to each side.
    Bicubic,
    /// A sinc times a wider sinc over three pixels to each side.
    Lanczos,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            // Of two pixels equally far the right one counts.
            Self::Box if distance > -0.5 && distance <= 0.5 => 1.0,
            Self::Bilinear if x < 1.0 => 1.0 - x,
            Self::Hamming if x == 0.0 => 1.0,
            // The factors are those of Pillow, which has them in single precision.
            Self::Hamming if x < 1.0 => {
                sinc(x) * (f64::from(0.54_f32) + f64::from(0.46_f32) * (x * PI).cos())
            }
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Self::Lanczos if (-3.0..3.0).contains(&distance) => {
                sinc(distance) * sinc(distance / 3.0)
            }
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    let x = x * PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// Bits after the point of a weight: 8 are the pixel's, 2 are for sums that leave its range.
const PRECISION: u32 = 32 - 8 - 2;

/// Pixels in rows, channels interleaved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) channels: usize,
    pub(crate) data: Vec<u8>,
}

/// First source pixel of one target pixel, and the weights from there on.
struct Window {
    start: usize,
    weights: Vec<i32>,
}

fn windows(from: usize, to: usize, filter: Filter) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let (support, shrink) = (filter.support() * stretch, 1.0 / stretch);
    let window = |target: usize| {
        let center = (target as f64 + 0.5) * scale;
        // Casts of negative values give 0, which is the edge.
        let start = (center - support + 0.5) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let weights: Vec<f64> = (start..end)
            .map(|source| filter.weight((source as f64 - center + 0.5) * shrink))
            .collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: &f64| {
            let weight = if sum == 0.0 { *weight } else { weight / sum };
            let scaled = weight * f64::from(1 << PRECISION);
            (if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
        };
        Window { start, weights: weights.iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

fn round(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// Resizes to `width` x `height`, both above 0.
pub(crate) fn resize(image: &Pixels, width: usize, height: usize, filter: Filter) -> Pixels {
    if filter == Filter::Nearest {
        return nearest(image, width, height);
    }
    let along = |image: &Pixels| match width == image.width {
        true => image.clone(),
        false => rows(image, width, filter),
    };
    let down = |image: &Pixels| match height == image.height {
        true => image.clone(),
        false => columns(image, height, filter),
    };
    if columns_first(image, width, height) { along(&down(image)) } else { down(&along(image)) }
}

/// Whether columns are resized before rows: where the height shrinks, and by more than twice the
/// pixels that the width loses. So does Pillow from version 13 on, whatever the filter; earlier
/// versions always begin with rows.
fn columns_first(image: &Pixels, width: usize, height: usize) -> bool {
    let less = |from: usize, to: usize| from as i64 - to as i64;
    height < image.height && 2 * less(image.width, width) < less(image.height, height)
}

/// The source pixel of each target pixel in one direction. The position is summed up step by step,
/// as Pillow does, not multiplied: the two differ in the last bit.
fn steps(from: usize, to: usize) -> Vec<usize> {
    let step = from as f64 / to as f64;
    let mut at = step * 0.5;
    let position = |_| {
        let source = at as usize;
        at += step;
        source.min(from - 1)
    };
    (0..to).map(position).collect()
}

fn nearest(image: &Pixels, width: usize, height: usize) -> Pixels {
    let channels = image.channels;
    let columns = steps(image.width, width);
    let mut data = Vec::with_capacity(width * height * channels);
    for row in steps(image.height, height) {
        let row = &image.data[row * image.width * channels..][..image.width * channels];
        for column in &columns {
            data.extend_from_slice(&row[column * channels..][..channels]);
        }
    }
    Pixels { width, height, channels, data }
}

fn rows(image: &Pixels, width: usize, filter: Filter) -> Pixels {
    let windows = windows(image.width, width, filter);
    let channels = image.channels;
    let mut data = Vec::with_capacity(width * image.height * channels);
    for row in image.data.chunks_exact(image.width * channels) {
        for window in &windows {
            for channel in 0..channels {
                let pixels = row[window.start * channels + channel..].iter().step_by(channels);
                data.push(weigh(&window.weights, pixels));
            }
        }
    }
    Pixels { width, height: image.height, channels, data }
}

fn columns(image: &Pixels, height: usize, filter: Filter) -> Pixels {
    let stride = image.width * image.channels;
    let mut data = Vec::with_capacity(stride * height);
    for window in windows(image.height, height, filter) {
        for column in 0..stride {
            let pixels = image.data[window.start * stride + column..].iter().step_by(stride);
            data.push(weigh(&window.weights, pixels));
        }
    }
    Pixels { width: image.width, height, channels: image.channels, data }
}

fn weigh<'a>(weights: &[i32], pixels: impl Iterator<Item = &'a u8>) -> u8 {
    let half = 1 << (PRECISION - 1);
    round(weights.iter().zip(pixels).fold(half, |sum, (weight, pixel)| {
        sum.wrapping_add(weight.wrapping_mul(i32::from(*pixel)))
    }))
}

#[cfg(test)]
mod tests;
