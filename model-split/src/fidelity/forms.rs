//! Inputs as they may cross: as tensors, as the pictures that came in, or compressed anew. The
//! pixels that a tensor was made of are found by inverting the affine step of the preprocessing,
//! and only where that gives exactly the tensor back.

use midspan_runtime::Tensor;

use crate::candidate::{Candidate, InputForm};
use crate::compress::{Pixels, jpeg, webp};
use crate::preprocess::{Colour, Layout, Preprocess};
use crate::samples::Sample;

/// The forms to measure.
pub(super) struct Forms<'a> {
    forms: Vec<InputForm>,
    refused: Vec<(Candidate, String)>,
    codec: Option<PixelCodec<'a>>,
}

impl<'a> Forms<'a> {
    /// Those of `wanted` that can be; what is told of the others does not depend on a sample.
    pub(super) fn new(
        wanted: &[InputForm],
        preprocess: Option<&'a Preprocess>,
        samples: &[Sample],
    ) -> Self {
        let codec = preprocess.map(PixelCodec::new);
        let (mut forms, mut refused) = (Vec::new(), Vec::new());
        for form in wanted {
            let reason = match form {
                InputForm::Tensor => None,
                InputForm::Received => samples
                    .iter()
                    .position(|sample| sample.picture.is_none())
                    .map(|sample| format!("sample {sample} is no picture")),
                InputForm::WebpLossless | InputForm::Jpeg(_) if codec.is_none() => {
                    Some("it is not said how a picture becomes the input".to_owned())
                }
                InputForm::Jpeg(quality) if !(1..=100).contains(quality) => {
                    Some("the quality must be 1 to 100".to_owned())
                }
                InputForm::WebpLossless | InputForm::Jpeg(_) => None,
            };
            match reason {
                None => forms.push(*form),
                Some(reason) => refused.push((Candidate::Input { form: *form }, reason)),
            }
        }
        Self { forms, refused, codec }
    }

    pub(super) fn forms(&self) -> impl Iterator<Item = InputForm> {
        self.forms.iter().copied()
    }

    pub(super) fn refused(&self) -> &[(Candidate, String)] {
        &self.refused
    }

    /// What a sample weighs in a form, and the input that comes out of it where that is another;
    /// or why it cannot take this form.
    pub(super) fn cross(
        &self,
        form: InputForm,
        sample: &Sample,
        pixels: &Result<Pixels, String>,
    ) -> Result<(u64, Option<Tensor>), String> {
        match (form, &self.codec) {
            (InputForm::Tensor, _) => {
                let bytes = sample.inputs.iter().map(|(_, tensor)| tensor.bytes().len() as u64);
                Ok((bytes.sum(), None))
            }
            (InputForm::Received, _) => {
                let picture = sample.picture.as_ref().ok_or("it is no picture")?;
                Ok((picture.len() as u64, None))
            }
            (InputForm::WebpLossless, Some(codec)) => {
                let pixels = pixels.as_ref().map_err(Clone::clone)?;
                let encoded = webp(pixels)?;
                // Lossless, so the same input must come out: the encoder is not taken on trust.
                if Some(codec.decode(&encoded)?.bytes()) != sample.single().map(Tensor::bytes) {
                    return Err("another picture came out of lossless WebP".into());
                }
                Ok((encoded.len() as u64, None))
            }
            (InputForm::Jpeg(quality), Some(codec)) => {
                let encoded = jpeg(pixels.as_ref().map_err(Clone::clone)?, quality)?;
                Ok((encoded.len() as u64, Some(codec.decode(&encoded)?)))
            }
            (InputForm::WebpLossless | InputForm::Jpeg(_), None) => {
                Err("it is not said how a picture becomes the input".into())
            }
        }
    }

    /// The pixels of a sample, where a form needs them.
    pub(super) fn pixels(&self, sample: &Sample) -> Result<Pixels, String> {
        let codec = self.codec.as_ref().ok_or("no picture")?;
        codec.pixels(sample.single().ok_or("the model has more than one input")?)
    }
}

/// Between tensors and pixels, and from encoded pictures of the right size to tensors.
struct PixelCodec<'a> {
    preprocess: &'a Preprocess,
    /// The same without resizing and cropping.
    affine: Preprocess,
}

impl<'a> PixelCodec<'a> {
    fn new(preprocess: &'a Preprocess) -> Self {
        let affine = Preprocess { resize: None, crop: None, ..preprocess.clone() };
        Self { preprocess, affine }
    }

    fn decode(&self, encoded: &[u8]) -> Result<Tensor, String> {
        self.affine.picture(encoded).map_err(|error| error.to_string())
    }

    fn pixels(&self, tensor: &Tensor) -> Result<Pixels, String> {
        let channels = match self.preprocess.colour {
            Colour::Grey => 1,
            Colour::Rgb => 3,
        };
        let (height, width, stride) = match (self.preprocess.layout, tensor.shape()) {
            (Layout::Nchw, [1, c, h, w]) if *c == channels => (*h, *w, (1, h * w)),
            (Layout::Nhwc, [1, h, w, c]) if *c == channels => (*h, *w, (channels, 1)),
            (_, shape) => return Err(format!("an input of shape {shape:?} is no such picture")),
        };
        let values = tensor.f32s().map_err(|error| error.to_string())?;
        let mut data = Vec::with_capacity(values.len());
        for pixel in 0..width * height {
            for channel in 0..channels {
                let value = values[pixel * stride.0 + channel * stride.1];
                data.push(self.pixel(channel, value).ok_or_else(|| {
                    format!("value {value} of channel {channel} is of no pixel of 0 to 255")
                })?);
            }
        }
        Ok(Pixels { width, height, channels, data })
    }

    /// The pixel that gives exactly this value.
    fn pixel(&self, channel: usize, value: f32) -> Option<u8> {
        let (scale, bias) =
            (self.preprocess.scale.get(channel)?, self.preprocess.bias.get(channel)?);
        let pixel = ((f64::from(value) - bias) / scale).round();
        let pixel = (0.0..=255.0).contains(&pixel).then_some(pixel as u8)?;
        // As the preprocessing computes it.
        let again = (f64::from(pixel) * scale + bias) as f32;
        (again == value).then_some(pixel)
    }
}

#[cfg(test)]
mod tests;
