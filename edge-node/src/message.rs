//! One inference message, whichever form it came in: from the request's tensors to the answer's.
//! What a form looks like on the wire is not known here.

use std::sync::Arc;

use midspan_protocol::{InferRequest, InferResponse, ModelName, Parameter};

use crate::{
    Node,
    accept::{self, accept},
    error::NodeError,
    infer::{Answer, Terms, infer},
    model::Model,
};

/// An answer as a message, and how it came about.
pub(crate) struct Answered {
    pub(crate) model: Arc<Model>,
    pub(crate) message: InferResponse,
    pub(crate) answer: Answer,
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
    let model = Arc::clone(node.repository.get(name)?);
    let accepted = if accept::has_pictures(&model, request) {
        // Decoding takes milliseconds; connections must not wait for it.
        let (model, request) = (Arc::clone(&model), request.clone());
        let decoding = tokio::task::spawn_blocking(move || accept(&model, &request));
        decoding.await.map_err(|error| NodeError::Execution(error.to_string()))??
    } else {
        accept(&model, request)?
    };
    let answer = infer(node, &model, accepted, terms).await?;
    node.load.served(answer.spent.ran);
    answered(model, request, answer)
}

/// Puts an answer of `model` into the form of a message: the outputs that were asked for, and
/// where each row was answered.
///
/// # Errors
/// An output that has no form in the protocol.
pub(crate) fn answered(
    model: Arc<Model>,
    request: &InferRequest,
    answer: Answer,
) -> Result<Answered, NodeError> {
    let wanted = |name: &str| {
        request.outputs.is_empty() || request.outputs.iter().any(|output| output.name == name)
    };
    let outputs = answer.outputs.iter().filter(|(name, _)| wanted(name));
    let outputs = outputs.map(|(name, blob)| blob.to_protocol(name)).collect::<Result<_, _>>()?;
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
    Ok(Answered { model, message, answer })
}
