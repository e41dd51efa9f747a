//! The pixels of an encoded picture as Pillow's `convert("L")` or `convert("RGB")` gives them:
//! transparency dropped, palettes looked up, of 16 bits the upper 8. (Of 16-bit grey pictures
//! Pillow clips at 255 instead, which leaves them white: those are treated as all others are here.)
//! What a file says of rotation is not obeyed, as Pillow does not by itself. Pictures come from
//! anyone: their size is bounded before they are decoded, and a decoder may not end the program.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
};

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::{Colour, LONGEST_SIDE, MOST_PIXELS, PictureError};
use crate::resize::Pixels;

/// Most memory that decoding may take.
const DECODING_MEMORY: u64 = 512 << 20;

/// Decoders read hostile bytes, and one of them panics on a PNG whose palette length is no multiple
/// of three (image-rs/image-png 682): a decoder's panic is a damaged picture, whichever decoder.
pub(super) fn decode(encoded: &[u8], colour: Colour) -> Result<Pixels, PictureError> {
    let caught = catch_unwind(AssertUnwindSafe(|| decode_unguarded(encoded, colour)));
    caught.unwrap_or_else(|_panic| Err(PictureError::Decode("the decoder gave up on it".into())))
}

fn decode_unguarded(encoded: &[u8], colour: Colour) -> Result<Pixels, PictureError> {
    let failed = |error: image::ImageError| PictureError::Decode(error.to_string());
    let mut reader = ImageReader::new(Cursor::new(encoded))
        .with_guessed_format()
        .map_err(|_| PictureError::Format)?;
    let known = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP];
    if !reader.format().is_some_and(|format| known.contains(&format)) {
        return Err(PictureError::Format);
    }
    let mut limits = Limits::default();
    limits.max_image_width = None;
    limits.max_image_height = None;
    limits.max_alloc = Some(DECODING_MEMORY);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(failed)?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MOST_PIXELS || width.max(height) > LONGEST_SIDE {
        return Err(PictureError::Size { width, height });
    }
    let image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    let image = eight_bits(image).ok_or_else(|| {
        PictureError::Decode("its pixels are neither of 8 nor of 16 bits a channel".into())
    })?;
    let data = match (colour, image) {
        (Colour::Grey, DynamicImage::ImageLuma8(grey)) => grey.into_raw(),
        (Colour::Grey, image) => {
            image.to_rgb8().as_chunks::<3>().0.iter().map(|rgb| luma(*rgb)).collect()
        }
        (Colour::Rgb, image) => image.into_rgb8().into_raw(),
    };
    let (width, height) = (width as usize, height as usize);
    Ok(Pixels { width, height, channels: colour.channels(), data })
}

/// ITU-R 601 luma in 16-bit fixed point.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let sum = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471;
    ((sum + 0x8000) >> 16) as u8
}

/// The picture with the upper 8 bits of each channel; none for channels of other than 8 or 16.
fn eight_bits(image: DynamicImage) -> Option<DynamicImage> {
    let (width, height) = (image.width(), image.height());
    let upper = |data: Vec<u16>| data.into_iter().map(|value| (value >> 8) as u8).collect();
    match image {
        DynamicImage::ImageLuma8(_)
        | DynamicImage::ImageLumaA8(_)
        | DynamicImage::ImageRgb8(_)
        | DynamicImage::ImageRgba8(_) => Some(image),
        DynamicImage::ImageLuma16(image) => {
            image::GrayImage::from_raw(width, height, upper(image.into_raw())).map(Into::into)
        }
        DynamicImage::ImageLumaA16(image) => {
            image::GrayAlphaImage::from_raw(width, height, upper(image.into_raw())).map(Into::into)
        }
        DynamicImage::ImageRgb16(image) => {
            image::RgbImage::from_raw(width, height, upper(image.into_raw())).map(Into::into)
        }
        DynamicImage::ImageRgba16(image) => {
            image::RgbaImage::from_raw(width, height, upper(image.into_raw())).map(Into::into)
        }
        _ => None,
    }
}
