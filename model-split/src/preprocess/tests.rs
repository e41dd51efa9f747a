//! Against pixels that Pillow made of the same files (`tests/golden/make.py`).

use std::path::Path;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    file: String,
    colour: Colour,
    resize: Option<Resize>,
    crop: Option<Size>,
    width: usize,
    height: usize,
    off_by: u8,
    pixels: Vec<u8>,
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)).unwrap()
}

fn plain(colour: Colour, layout: Layout) -> Preprocess {
    let (scale, bias) = (vec![1.0; colour.channels()], vec![0.0; colour.channels()]);
    Preprocess { colour, resize: None, crop: None, scale, bias, layout }
}

#[test]
fn pixels_are_those_of_pillow() {
    let cases: Vec<Case> = serde_json::from_slice(&golden("pillow.json")).unwrap();
    for case in cases {
        let preprocess =
            Preprocess { resize: case.resize, crop: case.crop, ..plain(case.colour, Layout::Nhwc) };
        preprocess.validate().unwrap();
        let tensor = preprocess.picture(&golden(&case.file)).unwrap();
        let what = format!("{} {:?} {:?}", case.file, case.resize, case.crop);
        let shape = [1, case.height, case.width, case.colour.channels()];
        assert_eq!(tensor.shape(), shape, "{what}");
        let allowed = f32::from(case.off_by);
        for (got, expected) in tensor.f32s().unwrap().iter().zip(&case.pixels) {
            assert!((got - f32::from(*expected)).abs() <= allowed, "{what}: {got} {expected}");
        }
    }
}

#[derive(Deserialize)]
struct Resized {
    file: String,
    colour: Colour,
    resize: Resize,
    nchw: crate::Digest,
    nhwc: crate::Digest,
}

#[test]
fn every_filter_at_every_size_is_that_of_pillow() {
    let cases: Vec<Resized> = serde_json::from_slice(&golden("pillow-resize.json")).unwrap();
    assert!(cases.len() > 250);
    for case in cases {
        let channels = case.colour.channels();
        let preprocess = |layout| Preprocess {
            resize: Some(case.resize),
            scale: [1.0 / 255.0, 0.5, 1.0 / 127.5][..channels].to_vec(),
            bias: [0.25, -3.0, -1.0][..channels].to_vec(),
            ..plain(case.colour, layout)
        };
        for (layout, expected) in [(Layout::Nchw, case.nchw), (Layout::Nhwc, case.nhwc)] {
            let tensor = preprocess(layout).picture(&golden(&case.file)).unwrap();
            let got = crate::Digest::of(tensor.bytes());
            assert_eq!(got, expected, "{} {:?} {layout:?}", case.file, case.resize);
        }
    }
}

#[test]
fn a_factor_of_a_255th_is_a_division_by_255() {
    let preprocess = Preprocess { scale: vec![1.0 / 255.0], ..plain(Colour::Grey, Layout::Nchw) };
    let data: Vec<u8> = (0..=255).collect();
    let tensor = preprocess.tensor(&Pixels { width: 256, height: 1, channels: 1, data });
    let expected: Vec<f32> = (0..=255u8).map(|pixel| f32::from(pixel) / 255.0).collect();
    assert_eq!(&*tensor.f32s().unwrap(), expected);
}

#[test]
fn layouts_and_channels_are_kept_apart() {
    let pixels = Pixels { width: 2, height: 1, channels: 3, data: vec![1, 2, 3, 4, 5, 6] };
    let mut preprocess = plain(Colour::Rgb, Layout::Nchw);
    preprocess.bias = vec![0.0, 10.0, 20.0];
    let tensor = preprocess.tensor(&pixels);
    assert_eq!(tensor.shape(), [1, 3, 1, 2]);
    assert_eq!(&*tensor.f32s().unwrap(), [1.0, 4.0, 12.0, 15.0, 23.0, 26.0]);
    preprocess.layout = Layout::Nhwc;
    let tensor = preprocess.tensor(&pixels);
    assert_eq!(tensor.shape(), [1, 1, 2, 3]);
    assert_eq!(&*tensor.f32s().unwrap(), [1.0, 12.0, 23.0, 4.0, 15.0, 26.0]);
}

#[test]
fn what_is_no_picture_is_refused() {
    let preprocess = plain(Colour::Rgb, Layout::Nchw);
    assert_eq!(preprocess.picture(b"GIF89a......"), Err(PictureError::Format));
    assert_eq!(preprocess.picture(b""), Err(PictureError::Format));
    let png = golden("rgb.png");
    for len in [8, 20, 40, png.len() / 2] {
        let error = preprocess.picture(&png[..len]).unwrap_err();
        assert!(matches!(error, PictureError::Decode(_)), "{len}: {error}");
    }
}

/// What is said of a picture whose header claims this size, its checksum made to fit.
fn claiming(width: u32, height: u32) -> PictureError {
    let mut png = golden("rgb.png");
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let mut checksum = flate2::Crc::new();
    checksum.update(&png[12..29]);
    png[29..33].copy_from_slice(&checksum.sum().to_be_bytes());
    plain(Colour::Rgb, Layout::Nchw).picture(&png).unwrap_err()
}

#[test]
fn pictures_that_claim_to_be_huge_are_refused_before_decoding() {
    assert_eq!(claiming(16_385, 1), PictureError::Size { width: 16_385, height: 1 });
    assert_eq!(claiming(16_384, 4_097), PictureError::Size { width: 16_384, height: 4_097 });
    // Small enough to be tried, but the data ends early.
    assert!(matches!(claiming(2_000, 2_000), PictureError::Decode(_)));
}

#[test]
fn a_crop_larger_than_the_picture_is_an_error() {
    let crop = Some(Size { width: 38, height: 5 });
    let error = Preprocess { crop, ..plain(Colour::Grey, Layout::Nchw) }
        .picture(&golden("grey.png"))
        .unwrap_err();
    assert_eq!(error, PictureError::Crop { got: (37, 29), wanted: (38, 5) });
}
