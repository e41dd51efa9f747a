//! Times of the halves that were not measured: a line through those that were, along the share of
//! the model's work in front of the cut. A half of more work is taken to be no faster, so that
//! noise of single measurements does not make a dip that a plan would fall into: neighbours out of
//! order are averaged (isotonic regression by pooling adjacent violators; Ayer et al., "An empirical
//! distribution function for sampling with incomplete information", 1955). Pure.

/// A line that only rises.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// Through these points, in any order; those at one place are averaged.
    pub(super) fn rising(mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Pools: where they stand, their mean, how many points they hold.
        let mut pools: Vec<(Vec<f64>, f64)> = Vec::new();
        for (x, y) in points {
            let mut pool = (vec![x], y);
            while let Some(last) =
                pools.pop_if(|(xs, mean)| *mean > pool.1 || xs.last() == Some(&pool.0[0]))
            {
                let (before, after) = (last.0.len() as f64, pool.0.len() as f64);
                let mean = (last.1 * before + pool.1 * after) / (before + after);
                pool = ([last.0, pool.0].concat(), mean);
            }
            pools.push(pool);
        }
        Self(
            pools
                .into_iter()
                .flat_map(|(xs, mean)| xs.into_iter().map(move |x| (x, mean)))
                .collect(),
        )
    }

    /// The value at `x`; beyond the ends that of the nearest point, 0 without any.
    pub(super) fn at(&self, x: f64) -> f64 {
        let after = self.0.partition_point(|(place, _)| *place < x);
        match (after.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(after)) {
            (Some((x0, y0)), Some((x1, y1))) if x1 > x0 => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
            (_, Some((_, y))) | (Some((_, y)), None) => *y,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_passes_through_what_is_in_order_and_averages_what_is_not() {
        let curve = Curve::rising(vec![(0.0, 0.0), (1.0, 10.0), (0.5, 4.0)]);
        assert_eq!((curve.at(0.25), curve.at(0.5), curve.at(0.75)), (2.0, 4.0, 7.0));
        assert_eq!((curve.at(-1.0), curve.at(2.0)), (0.0, 10.0));
        let curve = Curve::rising(vec![(0.2, 6.0), (0.4, 4.0), (1.0, 8.0)]);
        assert_eq!((curve.at(0.2), curve.at(0.3), curve.at(0.4)), (5.0, 5.0, 5.0));
        assert_eq!(Curve::rising(vec![(0.5, 1.0), (0.5, 3.0)]).at(0.5), 2.0);
        assert_eq!(Curve::rising(vec![]).at(0.5), 0.0);
    }

    proptest! {
        #[test]
        fn it_never_falls(points in prop::collection::vec((0.0..1.0_f64, 0.0..100.0_f64), 0..20)) {
            let curve = Curve::rising(points);
            let values: Vec<f64> = (0..=50).map(|step| curve.at(f64::from(step) / 50.0)).collect();
            prop_assert!(values.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9), "{values:?}");
        }
    }
}
