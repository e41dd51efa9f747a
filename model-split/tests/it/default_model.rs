//! The default model through stages, exits and codec: against the whole model, and against the
//! answers of an independent program (`tests/reference/reference.py`).

use std::collections::BTreeMap;
use std::path::Path;

use midspan_runtime::{Executor, Session, SessionOptions, Tensor, test_support};
use midspan_split::exit::classify;
use midspan_split::{Bundle, Coding, Frame, FrameHeader, encode, encode_as};
#[cfg(feature = "tools")]
use midspan_split::{samples::of_labelled, verify::verify};

fn repository(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

#[cfg(feature = "tools")]
#[test]
fn the_split_model_is_the_whole_model() {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let samples = of_labelled(&bundle.labelled().unwrap().unwrap(), "image");
    let mut calls = 0;
    let report =
        verify(&bundle, &repository("models/fashion.onnx"), &samples, &[8, 4], &mut |done, all| {
            calls += 1;
            assert_eq!((done, all), (calls, 1000));
        })
        .unwrap();
    assert_eq!((report.samples, calls), (1000, 1000));
    assert!(report.difference.within(1e-4), "{report:?}");
    assert!(report.agreement_raw >= 0.999, "{report:?}");
    let [cut] = report.cuts.as_slice() else { panic!("{report:?}") };
    let [(8, at_8), (4, at_4)] = cut.agreement[..] else { panic!("{report:?}") };
    assert!(cut.default && cut.tensor == "/seg0/bott/Clip_output_0", "{report:?}");
    assert!(at_8 >= 0.995 && (0.975..0.995).contains(&at_4), "{report:?}");
    let exit_share = report.exit_share.unwrap();
    assert!((exit_share - 0.797).abs() < 0.003, "{report:?}");
    let accuracy = report.accuracy.unwrap();
    assert!((accuracy.whole - 0.921).abs() < 0.002, "{report:?}");
    assert!((accuracy.served - 0.920).abs() < 0.002, "{report:?}");
}

#[test]
fn answers_are_those_of_the_independent_reference() {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let load = |stage| {
        let model = bundle.stage_model(stage).unwrap();
        Session::load(&model, &SessionOptions::default(), None).unwrap()
    };
    let (mut front, mut tail) = (load(0), load(1));
    let stages = &bundle.manifest().stages;
    let (first, last) = (stages[0].exit.as_ref().unwrap(), stages[1].exit.as_ref().unwrap());
    let rule = first.rule().unwrap();
    let (codec, precision) = (bundle.codec(0).unwrap(), bundle.precision(0).unwrap());
    let id = bundle.split_id().unwrap();
    let expected: BTreeMap<usize, (String, usize, f32)> =
        serde_json::from_slice(&repository("tests/reference/expected.json")).unwrap();
    let labelled = bundle.labelled().unwrap().unwrap();
    assert_eq!(labelled.len(), expected.len());
    let mut smallest = Vec::new();
    for (index, (place, class, confidence)) in expected {
        let image = labelled.tensor(index).unwrap();
        let outputs = front.run(&[("image", image.view())]).unwrap();
        let [z, logits] = outputs.as_slice() else { panic!("two outputs") };
        let exit = rule.decide(&logits.f32s().unwrap());
        let (got_place, got_class, got_confidence) = if exit.sure {
            ("edge", exit.class, exit.confidence)
        } else {
            let plain = encode_as(&z.view(), &codec, precision, id, Coding::Plain).unwrap();
            assert_eq!(plain.len(), 260);
            assert_eq!(FrameHeader::peek(&plain).unwrap().split_id, id);
            let rows = Frame::parse(&plain).unwrap().decode(&codec).unwrap();
            let frame = encode(&z.view(), &codec, precision, id).unwrap();
            assert_eq!(Frame::parse(&frame).unwrap().decode(&codec).unwrap(), rows);
            smallest.push(frame.len());
            let name = stages[1].inputs[0].name.as_str();
            let answer: Tensor = tail.run(&[(name, rows.view())]).unwrap().swap_remove(0);
            let (class, sure) = classify(&answer.f32s().unwrap(), last.temperature());
            ("cloud", class, sure)
        };
        assert_eq!((got_place, got_class), (place.as_str(), class), "image {index}");
        assert!((got_confidence - confidence).abs() < 1e-3, "image {index}");
    }
    let mean = smallest.iter().sum::<usize>() / smallest.len();
    assert!((220..240).contains(&mean), "{mean} bytes of a hard case's frame");
}

#[test]
fn golden_samples_hold_and_a_batch_is_its_rows() {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let labelled = bundle.labelled().unwrap().unwrap();
    let golden = &bundle.manifest().golden;
    assert_eq!(golden.len(), 8);
    let load = |stage| {
        let model = bundle.stage_model(stage).unwrap();
        Session::load(&model, &SessionOptions::default(), None).unwrap()
    };
    let (mut front, mut tail) = (load(0), load(1));
    let rows =
        golden.iter().flat_map(|golden| labelled.tensor(golden.sample).unwrap().into_bytes());
    let batch = Tensor::new(
        midspan_runtime::ElementType::F32,
        vec![golden.len(), 1, 28, 28],
        rows.collect(),
    )
    .unwrap();
    let z = front.run(&[("image", batch.view())]).unwrap().swap_remove(0);
    assert_eq!(z.shape(), [8, 8, 7, 7]);
    let name = bundle.manifest().stages[1].inputs[0].name.clone();
    let logits = tail.run(&[(name.as_str(), z.view())]).unwrap().swap_remove(0);
    for (row, golden) in logits.f32s().unwrap().chunks_exact(10).zip(golden) {
        assert_eq!(classify(row, 1.0).0, golden.class);
    }
}

#[test]
fn a_picture_gives_the_same_input_as_its_tensor() {
    let bundle = Bundle::embedded().unwrap();
    let labelled = bundle.labelled().unwrap().unwrap();
    let preprocess = bundle.manifest().preprocess.as_ref().unwrap();
    for index in [0, 499, 999] {
        let mut png = std::io::Cursor::new(vec![]);
        let pixels = labelled.pixels(index).unwrap().to_vec();
        image::GrayImage::from_raw(28, 28, pixels)
            .unwrap()
            .write_to(&mut png, image::ImageFormat::Png)
            .unwrap();
        assert_eq!(preprocess.picture(png.get_ref()).unwrap(), labelled.tensor(index).unwrap());
    }
}
