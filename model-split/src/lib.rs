//! ONNX cuts, bundles, activation codec, exits, preprocessing
