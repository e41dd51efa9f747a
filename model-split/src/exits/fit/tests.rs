//! The gradient against finite differences, and fits whose answer is known.

use super::*;

/// `count` random values, evenly in -1..1.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| (f64::from(rng.next_u32()) / 2f64.powi(31) - 1.0) as f32).collect()
}

fn features(rows: usize, columns: usize, seed: u64) -> Array2<f32> {
    Array2::from_shape_vec((rows, columns), random(rows * columns, seed)).unwrap()
}

/// Classes by the sign of the first two features: four, and a line parts one from the others only
/// in pairs, so that a hidden layer is not needed but may be used.
fn quadrants(count: usize, seed: u64) -> Rows {
    let features = features(count, 5, seed);
    let class = |row: ndarray::ArrayView1<'_, f32>| {
        usize::from(row[0] > 0.0) + 2 * usize::from(row[1] > 0.0)
    };
    let classes = features.rows().into_iter().map(class).collect();
    Rows { features, targets: Targets::Classes(classes) }
}

/// Two classes by whether the first two features have the same sign: no line parts them.
fn exclusive(count: usize, seed: u64) -> Rows {
    let features = features(count, 3, seed);
    let classes = features.rows().into_iter().map(|row| usize::from(row[0] * row[1] > 0.0));
    Rows { targets: Targets::Classes(classes.collect()), features }
}

fn right(layers: &Layers, rows: &Rows) -> f64 {
    let Targets::Classes(classes) = &rows.targets else { panic!("no classes") };
    let logits = layers.logits(rows.features.view());
    let best = |row: ndarray::ArrayView1<'_, f32>| {
        (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
    };
    let hits = logits.rows().into_iter().zip(classes).filter(|(row, class)| best(*row) == **class);
    hits.count() as f64 / classes.len() as f64
}

#[test]
fn the_gradient_is_that_of_finite_differences() {
    // More rows than one chunk, soft targets and classes, with and without a hidden layer.
    let count = CHUNK + 50;
    let soft = features(count, 3, 9).mapv(|value| value.abs() + 0.1);
    let soft = &soft / &soft.sum_axis(Axis(1)).insert_axis(Axis(1));
    let classes = (0..count).map(|index| index * 7 % 3).collect();
    for (hidden, targets) in [0, 6].into_iter().flat_map(|hidden| {
        [Targets::Soft(soft.clone()), Targets::Classes(Vec::clone(&classes))]
            .map(|targets| (hidden, targets))
    }) {
        let rows = Rows { features: features(count, 4, 5), targets };
        let shape = Shape { features: 4, hidden, classes: 3 };
        let objective = Objective { rows: &rows, shape, decay: 0.3, last: RefCell::default() };
        let params: Vec<f64> =
            random(shape.parameters(), 3).into_iter().map(|value| f64::from(value) * 0.7).collect();
        let (_, gradient) = objective.evaluate(&params);
        for (at, got) in gradient.iter().enumerate() {
            let beside = |step: f64| {
                let mut moved = params.clone();
                moved[at] += step;
                objective.evaluate(&moved).0
            };
            let step = 2e-3;
            let expected = (beside(step) - beside(-step)) / (2.0 * step);
            let difference = (got - expected).abs();
            assert!(difference < 2e-4, "{hidden} {at}: {got} is not {expected}");
        }
    }
}

#[test]
fn loss_and_gradient_agree_with_closed_forms() {
    // All weights 0: the loss is that of a uniform guess, and each bias falls by how much more than
    // a guess its class is there.
    let rows = Rows { features: features(4, 2, 1), targets: Targets::Classes(vec![0, 0, 0, 1]) };
    let shape = Shape { features: 2, hidden: 0, classes: 2 };
    let objective = Objective { rows: &rows, shape, decay: 0.0, last: RefCell::default() };
    let (loss, gradient) = objective.evaluate(&[0.0; 6]);
    assert!((loss - 2f64.ln()).abs() < 1e-7);
    assert!((gradient[4] + 0.25).abs() < 1e-7 && (gradient[5] - 0.25).abs() < 1e-7);
}

#[test]
fn what_a_line_parts_is_learnt_and_the_penalty_holds_weights_down() {
    let (rows, held_out) = (quadrants(800, 1), quadrants(400, 2));
    let shape = Shape { features: 5, hidden: 0, classes: 4 };
    let loose = fit(&rows, &held_out, shape, 1e-4, shape.start(0));
    assert!(right(&loose.layers, &held_out) > 0.97, "{}", right(&loose.layers, &held_out));
    let tight = fit(&rows, &held_out, shape, 10.0, shape.start(0));
    let size = |layers: &Layers| layers.last.weights.mapv(f32::abs).sum();
    assert!(size(&tight.layers) < size(&loose.layers) / 20.0);
    assert!(loose.held_out < tight.held_out && tight.held_out < 4f64.ln() + 1e-6);
}

#[test]
fn a_hidden_layer_learns_what_no_line_parts_and_the_seed_decides_it() {
    let (rows, held_out) = (exclusive(1200, 1), exclusive(400, 2));
    let shape = |hidden| Shape { features: 3, hidden, classes: 2 };
    let with =
        |hidden, seed| fit(&rows, &held_out, shape(hidden), 1e-4, shape(hidden).start(seed)).layers;
    assert!(right(&with(0, 0), &held_out) < 0.65);
    let learnt = with(16, 7);
    assert!(right(&learnt, &held_out) > 0.95, "{}", right(&learnt, &held_out));
    assert_eq!(with(16, 7), learnt);
    assert_ne!(with(16, 8), learnt);
}

#[test]
fn folding_the_scale_changes_no_answer() {
    let rows = features(50, 4, 3);
    let mean = Array1::from_vec(vec![0.5, -3.0, 0.0, 10.0]);
    let scale = Array1::from_vec(vec![2.0, 0.1, 0.0, 1.0]);
    for hidden in [0, 5] {
        let shape = Shape { features: 4, hidden, classes: 3 };
        let params: Vec<f64> = random(shape.parameters(), 4).into_iter().map(f64::from).collect();
        let layers = Layers::of(&params, shape);
        let standardised = (&rows - &mean) * &scale;
        let expected = layers.logits(standardised.view());
        let got = layers.folded(&mean, &scale).logits(rows.view());
        assert!((got - expected).iter().all(|difference| difference.abs() < 1e-4));
    }
}
