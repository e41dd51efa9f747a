#!/bin/sh
# Makes models/fashion, the bundle inside the program, of models/fashion.onnx and
# models/fashion.toml. The same two files give the same bytes: a test compares.
set -eu
cd "$(dirname "$0")/.."
exec cargo run --release -- split bundle make models/fashion.onnx \
    --spec models/fashion.toml --out models/fashion
