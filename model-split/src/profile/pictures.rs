//! Pictures as they cross: WebP without loss and JPEG, of the pixels that a model reads. It writes
//! and makes pictures; what a model makes of them is measured elsewhere.

use std::path::Path;

use midspan_runtime::{Dim, ElementType, TensorSpec};

use crate::bundle::read_bounded;
use crate::candidate::InputForm;
use crate::compress::{Pixels, jpeg, webp};
use crate::preprocess::{
    Colour, Filter, Fit, Layout, MOST_PIXELS, PictureError, Preprocess, Resize, Size,
};

/// Largest file of a picture that is read.
const LARGEST: u64 = 64 << 20;

/// Pixels in rows, the channels of a pixel side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels across and down, and the channels, 1 or 3.
    pub size: PictureSize,
    /// The values.
    pub data: Vec<u8>,
}

/// The size of a model's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    /// Pixels across.
    pub width: u16,
    /// Pixels down.
    pub height: u16,
    /// 1 for grey, 3 for red, green and blue.
    pub channels: u8,
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PicturesError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A file is no picture.
    #[error("{path}: {source}")]
    Picture {
        /// The file.
        path: String,
        /// Cause.
        source: PictureError,
    },
    /// An encoder refused the pixels.
    #[error("cannot write {width}x{height} pixels as {form}: {reason}")]
    Encode {
        /// Pixels across.
        width: u16,
        /// Pixels down.
        height: u16,
        /// What was to be written.
        form: InputForm,
        /// What the encoder said.
        reason: String,
    },
}

impl PictureSize {
    /// The picture that an input of a model stands for: one row of 1 or 3 channels of pixels.
    pub fn of(input: &TensorSpec) -> Option<Self> {
        let dim = |index: usize| match input.dims.get(index)? {
            Dim::Fixed(size) => u16::try_from(*size).ok().filter(|size| *size >= 4),
            Dim::Symbolic(_) => None,
        };
        let channels = |index: usize| match input.dims.get(index)? {
            Dim::Fixed(size @ (1 | 3)) => Some(*size as u8),
            _ => None,
        };
        if input.dims.len() != 4 || !matches!(input.element, ElementType::F32 | ElementType::U8) {
            return None;
        }
        let first = channels(1)
            .and_then(|channels| Some(Self { channels, height: dim(2)?, width: dim(3)? }));
        first.or_else(|| Some(Self { channels: channels(3)?, height: dim(1)?, width: dim(2)? }))
    }

    /// How a picture of any size becomes one of this size: scaled to cover it, the middle cut out.
    fn preprocess(self) -> Preprocess {
        let (width, height) = (u32::from(self.width), u32::from(self.height));
        let channels = usize::from(self.channels);
        Preprocess {
            colour: if self.channels == 1 { Colour::Grey } else { Colour::Rgb },
            resize: Some(Resize { width, height, filter: Filter::Bilinear, fit: Fit::Cover }),
            crop: Some(Size { width, height }),
            scale: vec![1.0; channels],
            bias: vec![0.0; channels],
            layout: Layout::Nhwc,
        }
    }
}

impl Picture {
    /// A picture of this size made of a file in PNG, JPEG or WebP.
    ///
    /// # Errors
    /// When the file cannot be read or is no picture.
    pub fn read(path: &Path, size: PictureSize) -> Result<Self, PicturesError> {
        let name = path.display().to_string();
        let encoded = read_bounded(path, LARGEST.min(MOST_PIXELS))
            .map_err(|source| PicturesError::Read { path: name.clone(), source })?;
        let fault = |source| PicturesError::Picture { path: name.clone(), source };
        let tensor = size.preprocess().picture(&encoded).map_err(fault)?;
        let values = tensor.f32s().unwrap_or_default();
        Ok(Self { size, data: values.iter().map(|value| *value as u8).collect() })
    }

    /// A picture with edges, slopes and grain, for times where nobody has real ones: the same on
    /// every machine.
    pub fn synthetic(size: PictureSize) -> Self {
        let mut noise = 0x2545_f491_u32;
        let mut data = Vec::new();
        for y in 0..u32::from(size.height) {
            for x in 0..u32::from(size.width) {
                for channel in 0..u32::from(size.channels) {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let slope = (x * 3 + y * (2 + channel)) / 4 % 192;
                    let block = if (x / 23 + y / 17) % 3 == 0 { 40 } else { 0 };
                    data.push((slope + block + (noise >> 29)) as u8);
                }
            }
        }
        Self { size, data }
    }

    /// The picture in this form; the form must be WebP or JPEG.
    ///
    /// # Errors
    /// When the encoder refuses, or the form is another.
    pub fn encode(&self, form: InputForm) -> Result<Vec<u8>, PicturesError> {
        let PictureSize { width, height, channels } = self.size;
        let fault = |reason: String| PicturesError::Encode { width, height, form, reason };
        let pixels = Pixels {
            width: width.into(),
            height: height.into(),
            channels: channels.into(),
            data: self.data.clone(),
        };
        match form {
            InputForm::WebpLossless => webp(&pixels),
            InputForm::Jpeg(quality) => jpeg(&pixels, quality.clamp(1, 100)),
            InputForm::Tensor | InputForm::Received => Err("not a form of pictures".into()),
        }
        .map_err(fault)
    }

    /// Reads what [`Picture::encode`] wrote, as a node would.
    ///
    /// # Errors
    /// When the bytes are no picture.
    pub fn decode(&self, encoded: &[u8]) -> Result<(), PictureError> {
        self.size.preprocess().picture(encoded).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_again_and_lossless_is() {
        for channels in [1, 3] {
            let size = PictureSize { width: 40, height: 24, channels };
            let picture = Picture::synthetic(size);
            let webp = picture.encode(InputForm::WebpLossless).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("picture.webp");
            std::fs::write(&file, &webp).unwrap();
            assert_eq!(Picture::read(&file, size).unwrap(), picture);
            let jpeg = |quality| picture.encode(InputForm::Jpeg(quality)).unwrap();
            picture.decode(&jpeg(75)).unwrap();
            assert!(jpeg(30).len() < jpeg(95).len());
            assert!(picture.encode(InputForm::Tensor).is_err());
        }
    }

    #[test]
    fn only_inputs_of_pixels_are_pictures() {
        let spec = |dims: &[usize]| TensorSpec {
            name: "x".into(),
            element: ElementType::F32,
            dims: dims.iter().map(|size| Dim::Fixed(*size)).collect(),
        };
        let size = |dims: &[usize]| {
            PictureSize::of(&spec(dims)).map(|size| (size.width, size.height, size.channels))
        };
        assert_eq!(size(&[1, 3, 20, 30]), Some((30, 20, 3)));
        assert_eq!(size(&[1, 20, 30, 3]), Some((30, 20, 3)));
        assert_eq!(size(&[1, 2, 20, 30]), None);
        assert_eq!(size(&[1, 20]), None);
    }
}
