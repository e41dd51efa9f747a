//! From an encoded picture to a model's input: decode, colour, resize, crop, affine, layout. The
//! steps and their rounding are those of Pillow, against whose results this is tested. How a
//! picture's pixels are had from its file is [`decode`]'s business.

mod decode;

use midspan_runtime::Tensor;
use serde::{Deserialize, Serialize};

pub use crate::resize::Filter;
use crate::resize::{Pixels, resize};

/// Most pixels of a picture.
pub const MOST_PIXELS: u64 = 64 << 20;
/// Largest width and height of a picture and of what it is resized to.
const LONGEST_SIDE: u32 = 16_384;

/// How a picture becomes a tensor of shape `[1,C,H,W]` or `[1,H,W,C]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preprocess {
    /// Channels.
    pub colour: Colour,
    /// The size to which the picture is brought first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// The part cut from the middle then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop: Option<Size>,
    /// Factor of each channel, applied to 0..255; one entry per channel.
    pub scale: Vec<f64>,
    /// Added to each channel after that; one entry per channel.
    pub bias: Vec<f64>,
    /// Order of the dimensions.
    pub layout: Layout,
}

/// Channels of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Colour {
    /// One: luma after ITU-R 601.
    Grey,
    /// Three: red, green, blue. Transparency is dropped.
    Rgb,
}

/// Order of dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Channels before rows and columns.
    Nchw,
    /// Channels last.
    Nhwc,
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
}

/// A size to bring pictures to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// How neighbouring pixels are weighed.
    pub filter: Filter,
    /// What to do with other proportions.
    pub fit: Fit,
}

/// What resizing does with other proportions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Stretch to exactly this size.
    Stretch,
    /// Keep the proportions: the smallest picture that covers this size.
    Cover,
}

/// Why a picture gives no tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// Not PNG, JPEG or WebP.
    #[error("not a PNG, JPEG or WebP picture")]
    Format,
    /// Damaged.
    #[error("cannot decode the picture: {0}")]
    Decode(String),
    /// More pixels than allowed.
    #[error(
        "the picture has {width} x {height} pixels; at most {MOST_PIXELS} in all and {LONGEST_SIDE} a side are taken"
    )]
    Size {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// Smaller than what is to be cut from it.
    #[error("a picture of {got:?} is smaller than the {wanted:?} to be cut from it")]
    Crop {
        /// Width and height there.
        got: (usize, usize),
        /// Width and height wanted.
        wanted: (usize, usize),
    },
}

impl Colour {
    fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
        }
    }
}

impl Preprocess {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// What makes no sense, as text.
    pub fn validate(&self) -> Result<(), String> {
        let channels = self.colour.channels();
        let numbers = |list: &[f64]| list.len() == channels && list.iter().all(|x| x.is_finite());
        if !numbers(&self.scale) || !numbers(&self.bias) {
            return Err(format!("scale and bias must be {channels} finite numbers each"));
        }
        let side = |pixels: u32| (1..=LONGEST_SIDE).contains(&pixels);
        let resize = self.resize.is_none_or(|size| side(size.width) && side(size.height));
        let crop = self.crop.is_none_or(|size| side(size.width) && side(size.height));
        if resize && crop { Ok(()) } else { Err("sizes must be 1 to 16384".into()) }
    }

    /// Makes the model's input of an encoded picture.
    ///
    /// # Errors
    /// When it is no picture, too large, or smaller than what is to be cut from it.
    pub fn picture(&self, encoded: &[u8]) -> Result<Tensor, PictureError> {
        let mut pixels = decode::decode(encoded, self.colour)?;
        if let Some(size) = self.resize {
            let (width, height) = target(&pixels, size)?;
            pixels = resize(&pixels, width, height, size.filter);
        }
        if let Some(size) = self.crop {
            pixels = crop(&pixels, size)?;
        }
        Ok(self.tensor(&pixels))
    }

    fn tensor(&self, pixels: &Pixels) -> Tensor {
        let Pixels { width, height, channels, data } = pixels;
        let value = |(channel, pixel): (usize, &u8)| {
            // In f64, so that 1/255 gives the same f32 as a division by 255 does.
            (f64::from(*pixel) * self.scale[channel] + self.bias[channel]) as f32
        };
        let (shape, values): (_, Vec<f32>) = match self.layout {
            Layout::Nhwc => {
                let channel = (0..*channels).cycle();
                (vec![1, *height, *width, *channels], channel.zip(data).map(value).collect())
            }
            Layout::Nchw => {
                let plane = |channel| {
                    let pixels = data.iter().skip(channel).step_by(*channels);
                    pixels.map(move |pixel| (channel, pixel))
                };
                let values = (0..*channels).flat_map(plane).map(value).collect();
                (vec![1, *channels, *height, *width], values)
            }
        };
        #[expect(clippy::expect_used, reason = "one value per pixel and channel was made")]
        Tensor::from_f32s(shape, &values).expect("as many values as pixels")
    }
}

fn target(pixels: &Pixels, size: Resize) -> Result<(usize, usize), PictureError> {
    let (width, height) = (size.width as usize, size.height as usize);
    let (width, height) = match size.fit {
        Fit::Stretch => (width, height),
        // The side that needs the larger factor decides; the other follows, rounded down.
        Fit::Cover if width * pixels.height >= height * pixels.width => {
            (width, (pixels.height * width / pixels.width).max(height))
        }
        Fit::Cover => ((pixels.width * height / pixels.height).max(width), height),
    };
    let fits = |side: usize| u32::try_from(side).is_ok_and(|side| side <= LONGEST_SIDE);
    if fits(width) && fits(height) && (width * height) as u64 <= MOST_PIXELS {
        return Ok((width, height));
    }
    let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
    Err(PictureError::Size { width: side(width), height: side(height) })
}

fn crop(pixels: &Pixels, size: Size) -> Result<Pixels, PictureError> {
    let (width, height) = (size.width as usize, size.height as usize);
    if width > pixels.width || height > pixels.height {
        let got = (pixels.width, pixels.height);
        return Err(PictureError::Crop { got, wanted: (width, height) });
    }
    let channels = pixels.channels;
    let (left, top) = ((pixels.width - width) / 2, (pixels.height - height) / 2);
    let rows = pixels.data.chunks_exact(pixels.width * channels).skip(top).take(height);
    let data = rows.flat_map(|row| &row[left * channels..(left + width) * channels]);
    Ok(Pixels { width, height, channels, data: data.copied().collect() })
}

#[cfg(test)]
mod tests;
