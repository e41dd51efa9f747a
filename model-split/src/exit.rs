//! Is an early answer good enough? A row of logits is sure when the largest probability of
//! `softmax(logits / temperature)` reaches the threshold. Rows with a NaN or an infinity, and
//! empty rows, are never sure. It must not know where a hard row goes.
//!
//! The sum runs in `f64`, so that the confidence does not depend on the order of the classes by
//! more than its last bit in `f32`.

/// A calibrated exit: both numbers were measured on held-out samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExitRule {
    /// Divides the logits; above 0.
    pub temperature: f32,
    /// Least confidence that counts as sure, 0 to 1.
    pub threshold: f32,
}

/// What an exit makes of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExitDecision {
    /// Index of the largest logit, the first of equals; 0 for a row that has none.
    pub class: usize,
    /// Calibrated probability of that class, 0 to 1; 0 where it cannot be said.
    pub confidence: f32,
    /// Whether the exit may answer.
    pub sure: bool,
}

impl ExitRule {
    /// Judges one row of logits.
    pub fn decide(&self, logits: &[f32]) -> ExitDecision {
        let (class, confidence) = classify(logits, self.temperature);
        let sound = !logits.is_empty() && logits.iter().all(|logit| logit.is_finite());
        ExitDecision { class, confidence, sure: sound && confidence >= self.threshold }
    }
}

/// The class of one row of logits and its confidence at a temperature; for the last exit, which
/// answers whatever its confidence is.
pub fn classify(logits: &[f32], temperature: f32) -> (usize, f32) {
    let best = logits.iter().enumerate().fold(
        None,
        |best: Option<(usize, f32)>, (index, logit)| match best {
            _ if logit.is_nan() => best,
            Some((_, largest)) if *logit <= largest => best,
            _ => Some((index, *logit)),
        },
    );
    let Some((class, largest)) = best else { return (0, 0.0) };
    if !logits.iter().all(|logit| logit.is_finite()) {
        return (class, 0.0);
    }
    let (largest, temperature) = (f64::from(largest), f64::from(temperature));
    let sum: f64 =
        logits.iter().map(|logit| ((f64::from(*logit) - largest) / temperature).exp()).sum();
    (class, (1.0 / sum) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ExitRule = ExitRule { temperature: 2.0, threshold: 0.5 };

    #[test]
    fn confidence_is_the_softmax_at_the_temperature() {
        let decision = RULE.decide(&[0.0, 2.0 * 3f32.ln()]);
        assert_eq!(decision.class, 1);
        assert!((decision.confidence - 0.75).abs() < 1e-6, "{decision:?}");
        assert!(decision.sure);
        assert!(!ExitRule { threshold: 0.76, ..RULE }.decide(&[0.0, 2.0 * 3f32.ln()]).sure);
    }

    #[test]
    fn the_threshold_itself_is_sure_and_the_first_of_equals_wins() {
        let decision = RULE.decide(&[1.0, 1.0]);
        assert_eq!(decision, ExitDecision { class: 0, confidence: 0.5, sure: true });
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let decision = RULE.decide(&[f32::MAX, f32::MIN, 0.0]);
        assert_eq!(decision, ExitDecision { class: 0, confidence: 1.0, sure: true });
    }

    #[test]
    fn broken_rows_are_never_sure() {
        let always = ExitRule { temperature: 1.0, threshold: 0.0 };
        for row in [&[][..], &[f32::NAN, 5.0], &[f32::INFINITY, 1.0], &[f32::NEG_INFINITY, 1.0]] {
            assert!(!always.decide(row).sure, "{row:?}");
        }
        assert_eq!(always.decide(&[f32::NAN, 5.0]).class, 1);
        assert_eq!(always.decide(&[f32::NAN]).class, 0);
    }
}
