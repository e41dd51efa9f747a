//! Order, bodies and arrival times of a workload.

use super::*;

fn set(images: usize) -> Labelled {
    Labelled {
        input: "image".into(),
        shape: vec![1, 2],
        images: (0..images).map(|n| vec![n as u8, 255]).collect(),
        labels: (0..images).map(|n| n as u32 % 10).collect(),
    }
}

fn images(workload: &Workload) -> Vec<usize> {
    (0..workload.len()).map(|index| workload.get(index).unwrap().image).collect()
}

#[test]
fn every_pass_holds_every_image_and_the_seed_decides_the_order() {
    let make = |seed| images(&Workload::new(&set(50), 120, seed, BodyForm::Binary).unwrap());
    let order = make(3);
    assert_eq!(order, make(3));
    assert_ne!(order, make(4));
    assert_ne!(order[..50], order[50..100]);
    for pass in [&order[..50], &order[50..100]] {
        let mut sorted = pass.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}

#[test]
fn bodies_are_valid_requests_in_both_forms() {
    for form in [BodyForm::Binary, BodyForm::Json] {
        let workload = Workload::new(&set(9), 9, 1, form).unwrap();
        for index in 0..workload.len() {
            let planned = workload.get(index).unwrap();
            assert_eq!(planned.body.json_length.is_some(), form == BodyForm::Binary);
            let request =
                InferRequest::parse(&planned.body.body, planned.body.json_length).unwrap();
            let tensor = &request.inputs[0];
            assert_eq!((tensor.name.as_str(), &tensor.shape[..]), ("image", &[1, 2][..]));
            assert_eq!(tensor.to_f32().unwrap(), [planned.image as f32 / 255.0, 1.0]);
            assert_eq!(planned.label, planned.image as u32 % 10);
            let wants = request.parameters.get("binary_data_output").and_then(Parameter::as_bool);
            assert_eq!(wants, (form == BodyForm::Binary).then_some(true));
        }
        assert!(workload.get(9).is_none());
    }
}

#[test]
fn arrivals_follow_the_rate_and_do_not_change_the_order() {
    let workload = Workload::new(&set(5), 20_000, 1, BodyForm::Json).unwrap();
    let rate = Rate::per_second(500.0).unwrap();
    assert_eq!(workload.arrivals(Pace::Closed), None);
    let even = workload.arrivals(Pace::Even(rate)).unwrap();
    assert_eq!((even[0], even[5]), (Duration::ZERO, Duration::from_millis(10)));
    let poisson = workload.arrivals(Pace::Poisson(rate)).unwrap();
    assert!(poisson.is_sorted());
    let mean = poisson[19_999].as_secs_f64() / 20_000.0;
    assert!((mean - 0.002).abs() < 0.0001, "{mean}");
    let gaps = poisson.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(2));
    let share = gaps.count() as f64 / 19_999.0;
    assert!((share - (-1.0_f64).exp()).abs() < 0.02, "{share}");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let refuse = |set: &Labelled, requests| {
        Workload::new(set, requests, 0, BodyForm::Binary).unwrap_err().to_string()
    };
    assert_eq!(refuse(&set(0), 1), "0 labelled images; expected 1 to 4294967295");
    assert_eq!(refuse(&set(1), 0), "0 requests; expected 1 to 5000000");
    assert_eq!(refuse(&set(1), MAX_REQUESTS + 1), "5000001 requests; expected 1 to 5000000");
    let mut odd = set(3);
    odd.labels.pop();
    assert_eq!(refuse(&odd, 1), "3 labelled images but 2 labels");
    odd = set(2);
    odd.images[1].push(0);
    let error = refuse(&odd, 2);
    assert!(error.starts_with("image 1: ") && error.contains("expected 8 bytes"), "{error}");
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e6] {
        assert_eq!(Rate::per_second(bad), None);
    }
}

#[test]
fn samples_of_a_bundle_become_requests() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let images = gzip(&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255]);
    let labels = gzip(&[0, 0, 8, 1, 0, 0, 0, 2, 9, 0]);
    let samples = midspan_split::Labelled::from_idx_gz(&images, &labels).unwrap();
    let set = Labelled::of_samples(&samples, "image");
    assert_eq!(set.images, [[1, 2, 3], [4, 5, 255]]);
    assert_eq!((&set.labels[..], &set.shape[..]), (&[9, 0][..], &[1, 1, 1, 3][..]));
    let workload = Workload::new(&set, 2, 0, BodyForm::Binary).unwrap();
    for index in 0..2 {
        let Planned { image, body, .. } = workload.get(index).unwrap();
        let request = InferRequest::parse(&body.body, body.json_length).unwrap();
        let values = request.inputs[0].to_f32().unwrap();
        assert_eq!(values[..], *samples.tensor(image).unwrap().f32s().unwrap());
    }
}
