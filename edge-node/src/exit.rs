//! Is an early answer good enough? Asks `model-split` row by row; where hard rows go from here is
//! not decided here.

use bytes::Bytes;
use midspan_protocol::{AnsweredBy, ExitMode};
use midspan_split::exit::classify;

use crate::{batch::Blob, error::NodeError, model::StageExit};

/// One row's answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowAnswer {
    /// Raw logits of whichever exit answered.
    pub(crate) logits: Bytes,
    pub(crate) place: AnsweredBy,
    /// Calibrated probability of the answer, 0 to 1.
    pub(crate) confidence: f32,
    /// Why it is less than the full path's answer.
    pub(crate) degraded: Option<&'static str>,
}

/// What an exit says of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) answer: RowAnswer,
    /// Whether the row is answered here.
    pub(crate) sure: bool,
}

/// Judges every row of an exit's logits. `number` is the exit's, from 1.
pub(crate) fn judge(
    exit: &StageExit,
    number: u8,
    logits: &Blob,
    mode: ExitMode,
) -> Result<Vec<Judged>, NodeError> {
    let rows = (0..logits.rows()).map(|row| {
        let bytes = logits.row(row).ok_or_else(|| bad_logits(logits))?;
        let values = floats(&bytes);
        let (sure, confidence) = match exit.rule {
            Some(rule) => {
                let decision = rule.decide(&values);
                (decision.sure, decision.confidence)
            }
            None => (true, classify(&values, exit.temperature).1),
        };
        let sure = match mode {
            ExitMode::Auto => sure,
            ExitMode::Never => false,
            ExitMode::Force => true,
        };
        let place = AnsweredBy::Exit(number);
        Ok(Judged { answer: RowAnswer { logits: bytes, place, confidence, degraded: None }, sure })
    });
    rows.collect()
}

/// The full path's answers, row by row.
pub(crate) fn settle(
    logits: &Blob,
    temperature: f32,
    place: AnsweredBy,
) -> Result<Vec<RowAnswer>, NodeError> {
    let rows = (0..logits.rows()).map(|row| {
        let bytes = logits.row(row).ok_or_else(|| bad_logits(logits))?;
        let confidence = classify(&floats(&bytes), temperature).1;
        Ok(RowAnswer { logits: bytes, place, confidence, degraded: None })
    });
    rows.collect()
}

fn bad_logits(logits: &Blob) -> NodeError {
    NodeError::Execution(format!("logits of shape {:?} have no rows", logits.shape))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use midspan_runtime::ElementType;
    use midspan_split::ExitRule;

    use super::*;

    #[test]
    fn each_row_is_judged_alone_and_the_mode_overrides() {
        let rule = ExitRule { temperature: 1.0, threshold: 0.9 };
        let exit = StageExit { output: "l".into(), temperature: 1.0, rule: Some(rule) };
        let values = [5.0_f32, 0.0, 0.1, 0.0];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let logits = Blob { element: ElementType::F32, shape: vec![2, 2], bytes: bytes.into() };
        let sure = |mode| {
            let judged = judge(&exit, 1, &logits, mode).unwrap();
            judged.iter().map(|row| row.sure).collect::<Vec<_>>()
        };
        assert_eq!(sure(ExitMode::Auto), [true, false]);
        assert_eq!(sure(ExitMode::Never), [false, false]);
        assert_eq!(sure(ExitMode::Force), [true, true]);
    }
}
