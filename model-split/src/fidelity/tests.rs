//! The default model through all candidates.

use super::*;
use crate::bundle::Bundle;
use crate::samples;
use crate::scale::Unit;

const CUT: &str = "/seg0/bott/Clip_output_0";

fn model() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fashion.onnx");
    std::fs::read(path).unwrap()
}

fn labelled(count: usize) -> (Bundle, Vec<Sample>) {
    let bundle = Bundle::embedded().unwrap();
    let all = samples::of_labelled(&bundle.labelled().unwrap().unwrap(), "image");
    (bundle, samples::spread(all, count))
}

fn options() -> Options {
    Options {
        inputs: vec![InputForm::Tensor, InputForm::Received, InputForm::WebpLossless],
        cuts: vec![CUT.to_owned()],
        precisions: vec![
            WirePrecision::Raw,
            WirePrecision::Half,
            WirePrecision::Bits(1),
            WirePrecision::Bits(8),
        ],
        fit: Some(Fit::default()),
        rule: Rule::Within(1e-3),
        threads: 1,
    }
}

fn quiet(_: Phase, _: usize, _: usize) {}

#[test]
fn every_candidate_of_the_default_model_is_measured() {
    midspan_runtime::test_support::library();
    let (bundle, samples) = labelled(60);
    let preprocess = bundle.manifest().preprocess.as_ref();
    let data = Data { samples: &samples[20..], calibration: &samples[..20], preprocess };
    let measured = measure(&model(), data, &options(), &quiet).unwrap();
    // Samples of a labelled set are no encoded pictures.
    assert_eq!(measured.refused.len(), 1);
    assert_eq!(measured.refused[0].0, Candidate::Input { form: InputForm::Received });
    let of = |candidate: &Candidate| {
        measured.fidelity.iter().find(|entry| entry.candidate == *candidate).unwrap()
    };
    let at = |precision| {
        let (cut, variant) = (CUT.to_owned(), PLAIN.to_owned());
        of(&Candidate::Activation { cut, precision, variant })
    };
    let tensor = of(&Candidate::Input { form: InputForm::Tensor });
    assert_eq!((tensor.bytes, tensor.samples, tensor.agreeing), (28.0 * 28.0 * 4.0, 40, 40));
    let webp = of(&Candidate::Input { form: InputForm::WebpLossless });
    assert!(webp.bytes < 784.0 && webp.agreeing == 40, "{webp:?}");
    // Unquantised the halves are the whole to rounding; one bit is not.
    assert_eq!(at(WirePrecision::Raw).agreeing, 40);
    assert!(at(WirePrecision::Bits(1)).agreeing < 40);
    let order = [WirePrecision::Bits(1), WirePrecision::Bits(8), WirePrecision::Half];
    assert!(order.windows(2).all(|pair| at(pair[0]).bytes < at(pair[1]).bytes));
    assert!(at(WirePrecision::Half).bytes <= at(WirePrecision::Raw).bytes);
    // The cut is behind a ReLU6.
    assert_eq!(measured.scales.len(), 2);
    for scale in &measured.scales {
        assert!(scale.lo == [0.0] && scale.hi[0] <= 6.0 && scale.hi[0] > 3.0, "{scale:?}");
    }
}

#[test]
fn threads_change_nothing_and_channels_have_their_scales() {
    midspan_runtime::test_support::library();
    let (bundle, samples) = labelled(24);
    let preprocess = bundle.manifest().preprocess.as_ref();
    let data = Data { samples: &samples, calibration: &samples, preprocess };
    let channels = Fit { unit: Unit::Channel, ..Fit::default() };
    let one = Options { fit: Some(channels), rule: Rule::SameClass, ..options() };
    let two = Options { threads: 3, ..one.clone() };
    let (one, two) = (
        measure(&model(), data, &one, &quiet).unwrap(),
        measure(&model(), data, &two, &quiet).unwrap(),
    );
    assert_eq!(one.fidelity, two.fidelity);
    assert_eq!(one.scales, two.scales);
    assert_eq!(one.scales[0].lo.len(), 8);
    // Ranges that travel need no calibration, and are no static scales.
    let own = Options { fit: None, ..options() };
    let own = measure(&model(), Data { calibration: &[], ..data }, &own, &quiet).unwrap();
    assert!(own.scales.is_empty());
    assert_eq!(own.fidelity.len(), one.fidelity.len());
}

#[test]
fn what_cannot_be_measured_is_told() {
    midspan_runtime::test_support::library();
    let (_, samples) = labelled(2);
    let data = Data { samples: &samples, calibration: &samples, preprocess: None };
    let told =
        |data, options: &Options| measure(&model(), data, options, &quiet).unwrap_err().to_string();
    let cuts = vec!["nowhere".to_owned()];
    let wrong = told(data, &Options { cuts, ..options() });
    assert!(wrong.contains("cut \"nowhere\""), "{wrong}");
    let none = told(Data { samples: &[], ..data }, &options());
    assert_eq!(none, "there are no samples to measure on");
    let unscaled = told(Data { calibration: &[], ..data }, &options());
    assert!(unscaled.contains("no samples to measure scales on"), "{unscaled}");
}

#[test]
fn a_file_is_read_as_it_was_written_and_checked() {
    let entry = Fidelity {
        candidate: Candidate::Input { form: InputForm::Jpeg(75) },
        bytes: 10.5,
        bytes_p95: 12,
        samples: 100,
        agreeing: 99,
        agreement_lower: 0.95,
    };
    let scale = MeasuredScale { cut: "c".into(), bits: 4, lo: vec![0.0], hi: vec![6.0] };
    let file = FidelityFile {
        format: FORMAT,
        model: crate::Digest::of(b"model"),
        samples: None,
        calibration: None,
        fidelity: vec![entry],
        scales: vec![scale],
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fidelity.json");
    let read = |file: &FidelityFile| {
        std::fs::write(&path, serde_json::to_vec(file).unwrap()).unwrap();
        FidelityFile::read(&path)
    };
    assert_eq!(read(&file).unwrap(), file);
    let mut wrong = file.clone();
    wrong.fidelity[0].agreement_lower = 0.995;
    assert!(read(&wrong).unwrap_err().to_string().contains("fidelity[0]"));
    let mut wrong = file.clone();
    wrong.scales[0].hi = vec![0.0];
    assert!(read(&wrong).unwrap_err().to_string().contains("scales[0]"));
    // The only candidate is no activation.
    assert_eq!(file.smallest(0.5), None);
    assert!(read(&FidelityFile { format: 2, ..file }).unwrap_err().to_string().contains("format"));
}
