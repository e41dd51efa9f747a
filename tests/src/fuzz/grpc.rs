//! Targets of the protocol crate's gRPC messages.

use bytes::Bytes;
use midspan_protocol::{
    Tensor,
    grpc::inference::{ModelInferRequest, ModelInferResponse},
};
use prost::Message;

use super::Outcome::{self, Refused, Taken};

fn check_tensors(tensors: &[Tensor], message: &[u8]) {
    for tensor in tensors {
        let Tensor { name, datatype, shape, data } = tensor.clone();
        let again = Tensor::new(name, datatype, shape, data);
        assert_eq!(again.as_ref(), Ok(tensor), "a tensor obeys its own rules");
        // A typed element takes at least a byte of the message, and at most eight of the tensor.
        assert!(tensor.data.len() <= message.len() * 8, "a tensor larger than its message allows");
    }
}

/// [`ModelInferRequest::into_request`].
pub(super) fn grpc_request(data: &[u8]) -> Outcome {
    let Ok(message) = ModelInferRequest::decode(Bytes::copy_from_slice(data)) else {
        return Refused;
    };
    let model = message.model();
    let Ok(request) = message.into_request() else { return Refused };
    check_tensors(&request.inputs, data);
    let again = ModelInferRequest::new(&model, request.clone()).encode_to_vec();
    let again = ModelInferRequest::decode(again.as_slice());
    let again = again.unwrap_or_else(|error| panic!("own message is refused: {error}"));
    assert_eq!(again.model(), model);
    let again = again.into_request();
    let again = again.unwrap_or_else(|error| panic!("own message is refused: {error}"));
    // As text, in which one NaN equals another.
    assert_eq!(format!("{again:?}"), format!("{request:?}"));
    Taken
}

/// [`ModelInferResponse::into_response`].
pub(super) fn grpc_response(data: &[u8]) -> Outcome {
    let Ok(message) = ModelInferResponse::decode(Bytes::copy_from_slice(data)) else {
        return Refused;
    };
    let Ok(response) = message.into_response() else { return Refused };
    check_tensors(&response.outputs, data);
    let again = ModelInferResponse::from(response.clone());
    assert_eq!(again.raw_output_contents.len(), again.outputs.len());
    let again = ModelInferResponse::decode(again.encode_to_vec().as_slice());
    let again = again.unwrap_or_else(|error| panic!("own message is refused: {error}"));
    let again = again.into_response();
    let again = again.unwrap_or_else(|error| panic!("own message is refused: {error}"));
    assert_eq!(format!("{again:?}"), format!("{response:?}"));
    Taken
}
