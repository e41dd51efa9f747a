//! Scales against distributions whose best range is known.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;

fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // The sum of twelve even numbers has variance 1 and nearly normal tails.
    (0..count).map(|_| (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0).collect()
}

fn fit(unit: Unit, clip: Clip) -> Fit {
    Fit { unit, clip, headroom: Headroom::default() }
}

fn observed(row_shape: &[usize], rows: &[f32]) -> Observed {
    let mut observed = Observed::new(row_shape);
    observed.add(rows, row_shape.iter().product());
    observed
}

/// Mean squared error of values that are quantised by a scale.
fn error(values: &[f32], scale: Scale, bits: u8) -> f64 {
    let step = scale.step(bits);
    let squares = values.iter().map(|value| {
        let level = ((value.clamp(scale.lo(), scale.hi()) - scale.lo()) / step).round();
        f64::from(scale.lo() + level * step - value).powi(2)
    });
    squares.sum::<f64>() / values.len() as f64
}

#[test]
fn nothing_is_clipped_where_nothing_may_be() {
    let values = observed(&[4], &[-1.5, 0.0, 7.0, 3.0]);
    let [scale] = values.scales(fit(Unit::Tensor, Clip::Nothing), 4).unwrap()[..] else { panic!() };
    assert_eq!((scale.lo(), scale.hi()), (-1.5, 7.0));
}

#[test]
fn the_least_error_is_less_than_that_of_any_other_symmetric_range() {
    let values = normal(20_000, 1);
    let seen = observed(&[20_000], &values);
    for bits in [3, 4, 5, 8] {
        let [best] = seen.scales(fit(Unit::Tensor, Clip::LeastError), bits).unwrap()[..] else {
            panic!()
        };
        let least = error(&values, best, bits);
        for end in [1.5f32, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0] {
            let other = error(&values, Scale::new(-end, end).unwrap(), bits);
            assert!(least <= other * 1.05, "{bits} bits: {least} against {other} at {end}");
        }
    }
}

#[test]
fn one_outlier_does_not_widen_the_range() {
    let mut values = normal(10_000, 2);
    values[77] = 500.0;
    let seen = observed(&[10_000], &values);
    let hi = |clip| seen.scales(fit(Unit::Tensor, clip), 4).unwrap()[0].hi();
    assert_eq!(hi(Clip::Nothing), 500.0);
    assert!(hi(Clip::Tails(0.001)) < 5.0);
    // At 4 bits and so few values the outlier costs more than wide steps do; with more it does not.
    let many: Vec<f32> = normal(400_000, 3).into_iter().chain([30.0]).collect();
    let seen = observed(&[400_001], &many);
    assert!(seen.scales(fit(Unit::Tensor, Clip::LeastError), 4).unwrap()[0].hi() < 6.0);
}

#[test]
fn channels_have_scales_of_their_own() {
    // Two rows of three channels of two values; the last channel is constant.
    let rows = [0.0, 1.0, -8.0, 8.0, 5.0, 5.0, 0.5, 2.0, -4.0, 0.0, 5.0, 5.0];
    let seen = observed(&[3, 2], &rows);
    let scales = seen.scales(fit(Unit::Channel, Clip::Nothing), 8).unwrap();
    let ranges: Vec<_> = scales.iter().map(|scale| (scale.lo(), scale.hi())).collect();
    assert_eq!(ranges[..2], [(0.0, 2.0), (-8.0, 8.0)]);
    assert_eq!(ranges[2].0, 5.0);
    let tensor = seen.scales(fit(Unit::Tensor, Clip::Nothing), 8).unwrap();
    assert_eq!((tensor[0].lo(), tensor[0].hi()), (-8.0, 8.0));
}

#[test]
fn what_gives_no_scale_is_told() {
    let nothing = observed(&[2, 1], &[f32::NAN, f32::INFINITY]);
    assert_eq!(nothing.scales(fit(Unit::Tensor, Clip::Nothing), 4), Err(ScaleError::Empty));
    let flat = observed(&[2], &[1.0, 2.0]);
    assert_eq!(flat.scales(fit(Unit::Channel, Clip::Nothing), 4), Err(ScaleError::Channels));
    let wide = observed(&[2], &[f32::MIN, f32::MAX]).scales(fit(Unit::Tensor, Clip::Nothing), 4);
    assert!(wide.unwrap_err().to_string().contains("make no range"));
    // A channel that was never finite takes the range of the others.
    let half = observed(&[2, 1], &[f32::NAN, 1.0, f32::NAN, 3.0]);
    let scales = half.scales(fit(Unit::Channel, Clip::Nothing), 4).unwrap();
    assert_eq!(scales[0], scales[1]);
}

#[test]
fn headroom_widens_both_sides() {
    let seen = observed(&[2, 2], &[0.0, 4.0, -1.0, 1.0]);
    let wide = |unit| Fit { unit, clip: Clip::Nothing, headroom: Headroom::new(0.25).unwrap() };
    let ranges = |unit| -> Vec<(f32, f32)> {
        let scales = seen.scales(wide(unit), 8).unwrap();
        scales.iter().map(|scale| (scale.lo(), scale.hi())).collect()
    };
    assert_eq!(ranges(Unit::Channel), [(-1.0, 5.0), (-1.5, 1.5)]);
    assert_eq!(ranges(Unit::Tensor), [(-2.25, 5.25)]);
    assert!(Headroom::new(-0.1).is_none() && Headroom::new(f64::NAN).is_none());
}
