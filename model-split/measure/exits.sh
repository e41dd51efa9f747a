#!/bin/sh
# What an exit is worth that was trained without any label, beside the one that the default model
# was trained with: throws that one away, trains a head at the same cut on what the whole model
# answers for the 60,000 training images of Fashion-MNIST, and scores both on the 10,000 test images.
# Fails when the new one may answer 5 points less at 1 % of disagreement. Further arguments go to
# `midspan split exits`. The new bundle stays in target/measure/exits.
#
# Example:  model-split/measure/exits.sh
#           model-split/measure/exits.sh --hidden 0 --k 7 --limit 10000
set -eu
cd "$(dirname "$0")/../.."
data=$(model-split/measure/fashion.sh)
out=target/measure/exits
mkdir -p "$out"
cargo build --release --package midspan
"${CARGO_TARGET_DIR:-target}/release/midspan" split exits \
    --model models/fashion.onnx --against model \
    --samples "$data/train-images-idx3-ubyte.gz" --labels "$data/train-labels-idx1-ubyte.gz" \
    --test "$data/t10k-images-idx3-ubyte.gz" --test-labels "$data/t10k-labels-idx1-ubyte.gz" \
    --out "$out/bundle" "$@" | tee "$out/report.txt"
awk '$1 == "old" { old = $3 } $1 == "new" { new = $3 }
    END {
        printf "the new exit answers %.2f points more than the old\n", new - old
        exit !(old > 0 && new >= old - 5)
    }' "$out/report.txt"
