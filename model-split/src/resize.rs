//! Resizing of 8-bit images, bit for bit as Pillow does it: antialiased filters, weights in 22-bit
//! fixed point, rows first, then columns, rounded to 8 bits in between. (Pillow 13 takes columns
//! first where the height shrinks far more than the width, which can change the last bit.) Pure.

use serde::{Deserialize, Serialize};

/// How neighbouring pixels are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// A triangle over one pixel to each side.
    Bilinear,
    /// A cubic with a = -0.5 over two pixels to each side.
    Bicubic,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Self::Bilinear if x < 1.0 => 1.0 - x,
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            _ => 0.0,
        }
    }
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
    let wide = if width == image.width { image.clone() } else { rows(image, width, filter) };
    if height == wide.height { wide } else { columns(&wide, height, filter) }
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
