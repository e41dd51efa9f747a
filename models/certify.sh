#!/bin/sh
# Certifies the exit of the bundle in a folder on images that nothing of it was made with: the first
# 5,000 test images of Fashion-MNIST that are not among the bundle's 1,000 labelled samples. The
# network was trained, and temperatures were fitted, on the training set alone. The day is fixed, so
# that the same files give the same bytes. Replaces the folder; further arguments go to calibrate.
#
# Example:  models/certify.sh models/fashion --json
set -eu
folder=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
data=$(model-split/measure/fashion.sh)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 - "$data" "$scratch" models/fashion-labelled/indices.txt <<'PYTHON'
import gzip
import sys
from pathlib import Path

data, out, shown = map(Path, sys.argv[1:])
shown = set(map(int, shown.read_text().split()))
chosen = [index for index in range(10_000) if index not in shown][:5_000]
for name, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
    file = f"t10k-{name}-ubyte.gz"
    idx = gzip.decompress((data / file).read_bytes())
    rows = b"".join(idx[head + index * size : head + (index + 1) * size] for index in chosen)
    count = len(chosen).to_bytes(4, "big")
    (out / file).write_bytes(gzip.compress(idx[:4] + count + idx[8:head] + rows, mtime=0))
PYTHON
cargo run --release -- split calibrate --bundle "$folder" --model models/fashion.onnx \
    --samples "$scratch/t10k-images-idx3-ubyte.gz" --labels "$scratch/t10k-labels-idx1-ubyte.gz" \
    --budget 0.01 --confidence 0.95 --loss both --date 2026-11-30 --out "$folder" "$@"
