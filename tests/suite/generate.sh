#!/usr/bin/env bash
# Writes the ONNX backend test suite to a folder (target/onnx-suite without another): 1,884 cases of
# operators by the generator of the package `onnx`, and the 149 models that it ships. Takes half a
# minute; 60 MB are fetched, 70 MB written.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/target/onnx-suite}
python=${PYTHON:-python3}

# One environment for each state of the list and version of Python; made aside, so that it is
# either whole or not there.
key=$({ cat "$here/requirements.txt"; "$python" --version; } | sha256sum | cut -c1-16)
venv=$root/target/tmp/suite-venv-$key
if [ ! -d "$venv" ]; then
    mkdir -p "$(dirname "$venv")"
    making=$(mktemp -d "$venv.XXXXXX")
    trap 'rm -rf "$making"' EXIT
    "$python" -m venv "$making"
    "$making/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --require-hashes --only-binary=:all: -r "$here/requirements.txt"
    mv "$making" "$venv"
    trap - EXIT
fi
mkdir -p "$out"
# The cases overflow and divide by zero on purpose; numpy warns of each.
"$venv/bin/python" -W ignore "$here/generate.py" "$out"
