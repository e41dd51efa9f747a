#!/bin/sh
# What crosses, and how often the answer stays the same: the table of EfficientNet-Lite0 in
# docs/SPLIT.md. About ten minutes on two cores, and 300 MB in FOLDER.
#
#     model-split/measure/rate.sh [FOLDER] [MORE FLAGS OF midspan split fidelity]
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-target/models}
[ $# -eq 0 ] || shift
models/efficientnet/make.sh "$folder"
exec cargo run --release --quiet -- split fidelity "$folder/efficientnet-lite0.onnx" \
    --cut b3.0,b5.0 \
    --samples "$folder/crops/test" \
    --calibration "$folder/crops/calibration" \
    --preprocess "$folder/preprocess.toml" \
    --out "$folder/fidelity.json" \
    "$@"
