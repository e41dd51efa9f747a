//! One inference message, whichever form it came in: from the request's tensors to the answer's.
//! What a form looks like on the wire is not known here.

use std::{sync::Arc, time::Instant};

use midspan_protocol::{
    InferRequest, InferResponse, ModelName, Parameter, RequestedOutput, Tensor,
};

use crate::{
    Node,
    accept::{self, accept},
    classify,
    error::NodeError,
    infer::{Answer, Terms, infer},
    model::Model,
    schedule::scheduled,
    statistics::Measure,
};

/// An answer as a message, and how it came about.
pub(crate) struct Answered {
    pub(crate) model: Arc<Model>,
    pub(crate) message: InferResponse,
    pub(crate) answer: Answer,
    /// Counts the request when it is dropped, which should be when the answer is written.
    pub(crate) measure: Measure,
}

/// Answers an inference request.
///
/// # Errors
/// Whatever keeps the model from answering.
pub(crate) async fn answer(
    node: &Arc<Node>,
    name: &ModelName,
    request: &InferRequest,
    terms: &Terms,
) -> Result<Answered, NodeError> {
    let model = node.repository.get(name)?;
    let mut measure = model.counters.begin();
    let shortened = scheduled(terms, request, Instant::now())?;
    let terms = shortened.as_ref().unwrap_or(terms);
    let accepted = if accept::has_pictures(&model, request) {
        // Decoding takes milliseconds; connections must not wait for it.
        let (model, request) = (Arc::clone(&model), request.clone());
        let decoding = tokio::task::spawn_blocking(move || accept(&model, &request));
        decoding.await.map_err(|error| NodeError::Execution(error.to_string()))??
    } else {
        accept(&model, request)?
    };
    measure.accepted();
    let rows = if model.batch_first() { accepted.rows } else { 1 };
    let answer = infer(node, &model, accepted, terms).await?;
    node.load.served(answer.spent.ran);
    measure.answered(rows, answer.spent);
    answered(model, request, answer, measure)
}

/// Puts an answer of `model` into the form of a message: the outputs that were asked for, as they
/// were asked for, and where each row was answered.
///
/// # Errors
/// An output that has no form in the protocol.
pub(crate) fn answered(
    model: Arc<Model>,
    request: &InferRequest,
    answer: Answer,
    mut measure: Measure,
) -> Result<Answered, NodeError> {
    let outputs = outputs(&model, request, &answer).inspect_err(|_| measure.failed())?;
    let mut message = InferResponse {
        model_name: model.name.clone(),
        model_version: Some(model.version.clone()),
        id: request.id.clone(),
        outputs,
        ..InferResponse::default()
    };
    if !answer.rows.is_empty() {
        let places: Vec<String> = answer.rows.iter().map(|row| row.place.to_string()).collect();
        let confidence = answer.rows.iter().map(|row| format!("{:.6}", row.confidence));
        let confidence: Vec<String> = confidence.collect();
        message.parameters.set("midspan_places", Parameter::Text(places.join(",")));
        message.parameters.set("midspan_confidence", Parameter::Text(confidence.join(",")));
    }
    Ok(Answered { model, message, answer, measure })
}

fn outputs(
    model: &Model,
    request: &InferRequest,
    answer: &Answer,
) -> Result<Vec<Tensor>, NodeError> {
    let mut tensors = Vec::with_capacity(answer.outputs.len());
    for (name, blob) in &answer.outputs {
        let asked = request.outputs.iter().find(|output| output.name == *name);
        if asked.is_none() && !request.outputs.is_empty() {
            continue;
        }
        let count = asked.map(RequestedOutput::classification).transpose()?.flatten();
        tensors.push(match count {
            None => blob.to_protocol(name)?,
            Some(count) => {
                // The bundle's labels are those of the first output.
                let first = model.outputs.first().is_some_and(|port| port.spec.name == *name);
                let labels = if first { model.labels.as_slice() } else { &[] };
                classify::classify(name, blob, model.batched(), count, labels)?.to_protocol(name)?
            }
        });
    }
    Ok(tensors)
}
