//! The cloud's side of an offload: the split id is judged before anything is decoded, then the
//! remaining stages run and the last exit answers.

use bytes::Bytes;
use http::HeaderMap;
use midspan_protocol::{AnsweredBy, headers};
use midspan_split::{Frame, FrameHeader};

use crate::{
    Node,
    batch::Blob,
    error::NodeError,
    infer::{Answer, Spent, Terms, run},
    model::Model,
};

/// Runs the rest of an inference from a frame.
pub(crate) async fn resume(
    node: &Node,
    model: &Model,
    map: &HeaderMap,
    body: &Bytes,
    terms: &Terms,
) -> Result<Answer, NodeError> {
    let frame_error = |error: midspan_split::CodecError| NodeError::Input(error.to_string());
    let header = FrameHeader::peek(body).map_err(frame_error)?;
    let stated = map.get(headers::SPLIT_ID).and_then(|value| value.to_str().ok());
    let got = header.split_id.to_string();
    if stated.is_some_and(|stated| stated != got) {
        return Err(NodeError::BadRequest(format!(
            "{} differs from the frame's",
            headers::SPLIT_ID
        )));
    }
    let Some((after, cut)) = model.resume_after(header.split_id) else {
        let live = model.live_splits().iter().map(ToString::to_string).collect();
        return Err(NodeError::Split { got, live });
    };
    let frame = Frame::parse(body).map_err(frame_error)?;
    // A coded frame of a few bytes can stand for many rows: they count as a body that has them.
    let most = node.config.limits.body.0;
    let rows = frame.decode_within(&cut.codec, most).map_err(frame_error)?;
    let rows = Blob::from_tensor(rows);
    let mut inputs = vec![(cut.tensor.clone(), rows)];
    let mut spent = Spent::default();
    let rest = model.stages.get(after + 1..).unwrap_or(&[]);
    for stage in rest {
        let outputs = run(node, stage, inputs, terms, &mut spent).await?;
        let Some(next) = &stage.cut else {
            let output = |port: &crate::model::Port| {
                let blob = stage.output(&port.inner).and_then(|at| outputs.get(at))?;
                Some((port.spec.name.clone(), blob.clone()))
            };
            let outputs: Option<Vec<_>> = model.outputs.iter().map(output).collect();
            let missing = || NodeError::Execution("the last stage lacks an output".into());
            let outputs = outputs.ok_or_else(missing)?;
            return Ok(Answer {
                outputs,
                rows: Vec::new(),
                place: AnsweredBy::Local,
                certified: false,
                region: None,
                spent,
            });
        };
        let crossing = stage.output(&next.tensor).and_then(|at| outputs.get(at)).cloned();
        let missing = || NodeError::Execution("a stage lacks its activation".into());
        inputs = vec![(next.tensor.clone(), crossing.ok_or_else(missing)?)];
    }
    Err(NodeError::Execution("no stage follows the cut".into()))
}
