//! Pictures as they cross: WebP without loss and JPEG. What is timed and what is judged are written
//! by the same code. It must not know of models.

use jpeg_encoder::{ColorType, Encoder as JpegEncoder, SamplingFactor};
use webp::{Encoder as WebpEncoder, WebPConfig};

/// Of libwebp's methods the one that compresses best, at the effort that it has by default: full
/// effort was measured to save 1 % of the bytes in twelve times the time.
const METHOD: i32 = 6;
const EFFORT: f32 = 75.0;

/// Pixels of a picture, row by row, channels side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// 1 for grey, 3 for red, green and blue.
    pub(crate) channels: usize,
    pub(crate) data: Vec<u8>,
}

/// Whether no pixel has a colour.
fn is_grey(pixels: &Pixels) -> bool {
    pixels.data.chunks_exact(pixels.channels).all(|pixel| pixel.iter().all(|c| *c == pixel[0]))
}

/// WebP without loss.
pub(crate) fn webp(pixels: &Pixels) -> Result<Vec<u8>, String> {
    let side = |side: usize| u32::try_from(side).ok().filter(|side| (1..=16_383).contains(side));
    let (Some(width), Some(height)) = (side(pixels.width), side(pixels.height)) else {
        return Err("WebP takes pictures of 1 to 16383 pixels a side".into());
    };
    let spread: Vec<u8>;
    let rgb = match pixels.channels {
        3 => &pixels.data,
        _ => {
            spread = pixels.data.iter().flat_map(|grey| [*grey; 3]).collect();
            &spread
        }
    };
    let mut config = WebPConfig::new().map_err(|()| "libwebp has another version")?;
    (config.lossless, config.method, config.quality) = (1, METHOD, EFFORT);
    let encoded = WebpEncoder::from_rgb(rgb, width, height).encode_advanced(&config);
    encoded.map(|memory| memory.to_vec()).map_err(|error| format!("libwebp: {error:?}"))
}

/// JPEG of this quality, 1 to 100, colours at half the resolution as most programs write them; a
/// picture without colour as grey.
pub(crate) fn jpeg(pixels: &Pixels, quality: u8) -> Result<Vec<u8>, String> {
    let (Ok(width), Ok(height)) = (u16::try_from(pixels.width), u16::try_from(pixels.height))
    else {
        return Err("JPEG takes pictures of at most 65535 pixels a side".into());
    };
    let grey: Vec<u8>;
    let (data, colour) = if is_grey(pixels) {
        grey = pixels.data.iter().step_by(pixels.channels).copied().collect();
        (&grey, ColorType::Luma)
    } else {
        (&pixels.data, ColorType::Rgb)
    };
    let mut encoded = Vec::new();
    let mut encoder = JpegEncoder::new(&mut encoded, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.encode(data, width, height, colour).map_err(|error| error.to_string())?;
    Ok(encoded)
}
