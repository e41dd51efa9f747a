//! Pixels out of tensors and back, through both encoders.

use super::*;

fn preprocess(colour: &str, layout: &str, scale: f64, bias: f64) -> Preprocess {
    let channels = if colour == "rgb" { 3 } else { 1 };
    let numbers = |number: f64| vec![number; channels];
    let json = serde_json::json!({
        "colour": colour,
        "resize": { "width": 4, "height": 4, "filter": "bilinear", "fit": "stretch" },
        "scale": numbers(scale),
        "bias": numbers(bias),
        "layout": layout,
    });
    serde_json::from_value(json).unwrap()
}

/// A soft coloured picture with some texture.
fn picture(width: usize, height: usize, channels: usize) -> Pixels {
    let data = (0..width * height * channels).map(|index| {
        let (pixel, channel) = (index / channels, index % channels);
        let (x, y) = (pixel % width, pixel / width);
        (x * 3 + y * 2 * (channel + 1) + (x * y) % 5) as u8
    });
    Pixels { width, height, channels, data: data.collect() }
}

fn png(pixels: &Pixels) -> Vec<u8> {
    let (width, height) = (pixels.width as u32, pixels.height as u32);
    let image: image::DynamicImage = match pixels.channels {
        1 => image::GrayImage::from_raw(width, height, pixels.data.clone()).unwrap().into(),
        _ => image::RgbImage::from_raw(width, height, pixels.data.clone()).unwrap().into(),
    };
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn sample(tensor: Tensor) -> Sample {
    Sample { inputs: vec![("x".into(), tensor)], label: None, picture: None }
}

#[test]
fn pixels_come_back_whatever_the_affine_and_the_layout() {
    for (colour, channels) in [("grey", 1), ("rgb", 3)] {
        for layout in ["nchw", "nhwc"] {
            for (scale, bias) in [(1.0 / 255.0, 0.0), (1.0 / 128.0, -127.0 / 128.0), (1.0, 0.0)] {
                let preprocess = preprocess(colour, layout, scale, bias);
                let codec = PixelCodec::new(&preprocess);
                let pixels = picture(31, 17, channels);
                let tensor = codec.decode(&png(&pixels)).unwrap();
                assert_eq!(codec.pixels(&tensor), Ok(pixels), "{colour} {layout} {scale}");
            }
        }
    }
}

#[test]
fn lossless_webp_gives_the_same_input_and_jpeg_a_near_one() {
    for (colour, channels) in [("grey", 1), ("rgb", 3)] {
        let preprocess = preprocess(colour, "nchw", 1.0 / 255.0, 0.0);
        let pixels = picture(64, 48, channels);
        let tensor = PixelCodec::new(&preprocess).decode(&png(&pixels)).unwrap();
        let sample = sample(tensor.clone());
        let wanted = [InputForm::Tensor, InputForm::WebpLossless, InputForm::Jpeg(95)];
        let forms = Forms::new(&wanted, Some(&preprocess), std::slice::from_ref(&sample));
        let pixels = forms.pixels(&sample);
        let cross = |form| forms.cross(form, &sample, &pixels).unwrap();
        assert_eq!(cross(InputForm::Tensor), (tensor.bytes().len() as u64, None));
        let (bytes, other) = cross(InputForm::WebpLossless);
        assert!(other.is_none() && bytes < (64 * 48 * channels) as u64, "{bytes}");
        let (bytes, other) = cross(InputForm::Jpeg(95));
        let other = other.unwrap();
        assert_eq!(other.shape(), tensor.shape());
        let far = |(a, b): (&f32, &f32)| (a - b).abs();
        let (one, two) = (tensor.f32s().unwrap(), other.f32s().unwrap());
        let mean = one.iter().zip(&*two).map(far).sum::<f32>() / one.len() as f32;
        assert!(mean > 0.0 && mean < 0.05 && bytes > 100, "{mean}, {bytes} bytes");
    }
}

#[test]
fn a_picture_without_colour_is_written_as_grey() {
    let mut pixels = picture(32, 32, 3);
    let coloured = jpeg(&pixels, 90).unwrap().len();
    pixels.data = picture(32, 32, 1).data.iter().flat_map(|grey| [*grey; 3]).collect();
    let written = jpeg(&pixels, 90).unwrap();
    let decoded = image::load_from_memory(&written).unwrap();
    assert_eq!(decoded.color(), image::ColorType::L8);
    assert!(written.len() < coloured);
}

#[test]
fn what_was_no_pixel_is_refused_with_its_value() {
    let preprocess = preprocess("grey", "nchw", 1.0 / 255.0, 0.0);
    let codec = PixelCodec::new(&preprocess);
    let of = |value: f32| codec.pixels(&Tensor::from_f32s(vec![1, 1, 1, 1], &[value]).unwrap());
    assert_eq!(of(1.0).unwrap().data, [255]);
    for wrong in [0.5, -1.0 / 255.0, 256.0 / 255.0, f32::NAN] {
        let reason = of(wrong).unwrap_err();
        assert!(reason.starts_with(&format!("value {wrong} of channel 0")), "{reason}");
    }
    let shape = codec.pixels(&Tensor::from_f32s(vec![1, 2, 1, 1], &[0.0, 0.0]).unwrap());
    assert_eq!(shape, Err("an input of shape [1, 2, 1, 1] is no such picture".into()));
}

#[test]
fn forms_that_no_sample_can_take_are_told_once() {
    let samples = [sample(Tensor::from_f32s(vec![1, 1], &[0.0]).unwrap())];
    let wanted = [InputForm::Tensor, InputForm::Received, InputForm::Jpeg(90)];
    let forms = Forms::new(&wanted, None, &samples);
    assert_eq!(forms.forms().collect::<Vec<_>>(), [InputForm::Tensor]);
    let reasons: Vec<&str> = forms.refused().iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["sample 0 is no picture", "it is not said how a picture becomes the input"]
    );
}
