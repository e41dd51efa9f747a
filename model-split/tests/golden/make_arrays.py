#!/usr/bin/env python3
"""Makes arrays.npz, which tests of the .npy reader take apart (no code of ours).

Invocation: python3 make_arrays.py, in this folder, with numpy 2.4.6 and ml_dtypes 0.6.0.
"""

from pathlib import Path

import ml_dtypes
import numpy as np

grid = np.arange(6).reshape(2, 3)
arrays = {
    "c": grid.astype("<f4"),
    "fortran": np.asfortranarray(grid.astype("<f4")),
    "cube": np.asfortranarray(np.arange(24).reshape(2, 3, 4).astype("<i2")),
    "big": grid.astype(">i4"),
    "big_fortran": np.asfortranarray(grid.astype(">u2")),
    "bool": grid > 2,
    "half": grid.astype("<f2"),
    "bfloat": grid.astype(ml_dtypes.bfloat16),
    "double": grid.astype("<f8"),
    "text": np.array(["a", "", "größe"]),
    "bytes": np.array([b"ab", b"", b"c"]),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 3), "<i8"),
    "complex": grid.astype("<c8"),
}
out = Path(__file__).resolve().parent
np.savez_compressed(out / "arrays.npz", **{k: v for k, v in arrays.items() if k != "complex"})
np.save(out / "complex.npy", arrays["complex"])
