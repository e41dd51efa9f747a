#!/usr/bin/env python3
"""Writes the ONNX backend test suite as folders: the models that the package `onnx` ships, and the
cases of single operators, which the package keeps as Python code and writes by its own generator.
The argument is the folder; what it has of the suite is replaced."""

import argparse
import pathlib
import shutil
import sys

import numpy
import onnx
from onnx.backend.test import cmd_tools
from onnx.backend.test.case import node

SHIPPED = ("simple", "pytorch-converted", "pytorch-operator", "light")

out = pathlib.Path(sys.argv[1])
for kind in ("node", *SHIPPED):
    shutil.rmtree(out / kind, ignore_errors=True)

# Some cases draw their inputs from numpy's global generator.
numpy.random.seed(0)
# `generate-data` asks this module for its cases: by default only for those of whole models.
cmd_tools.model_test = node
cmd_tools.generate_data(argparse.Namespace(output=str(out)))

data = pathlib.Path(cmd_tools.DATA_DIR)
for kind in SHIPPED:
    shutil.copytree(data / kind, out / kind)

counts = {kind: sum(1 for _ in (out / kind).rglob("*.onnx")) for kind in ("node", *SHIPPED)}
(out / "VERSION").write_text(f"onnx {onnx.__version__}\n")
print(f"onnx {onnx.__version__}: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
