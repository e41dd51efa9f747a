"""Sample tensors of every datatype, with the corners of each: what identity models are sent."""

import numpy as np

INTEGERS = {
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
}


def plain():
    """Model and values, for each datatype that JSON can carry; no NaN."""
    yield "identity_bool", "BOOL", np.array([True, False, True])
    for datatype, kind in INTEGERS.items():
        ends = np.iinfo(kind)
        yield f"identity_{datatype.lower()}", datatype, np.array([ends.min, 0, 1, ends.max], kind)
    yield "identity_fp32", "FP32", np.array([0.1, -0.0, 1e-45, 3.4028235e38, 1.0], np.float32)
    yield "identity_fp64", "FP64", np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, 1.0])


def raw():
    """The same, and what only binary data can carry."""
    yield from plain()
    odd = [0.1, -0.0, np.nan, np.inf, -np.inf]
    yield "identity_fp16", "FP16", np.array(odd, np.float16)
    yield "identity_fp32", "FP32", np.array(odd, np.float32)
    yield "identity_fp64", "FP64", np.array(odd)


def rows():
    """Two rows of 16 integers each for `simple`, then their sum and their difference."""
    left = np.arange(32, dtype=np.int32).reshape(2, 16)
    right = np.full((2, 16), 3, np.int32)
    return left, right, left + right, left - right


def as_texts(array):
    """Integers written as BYTES elements."""
    texts = [str(value).encode() for value in array.reshape(-1)]
    return np.array(texts, dtype=object).reshape(array.shape)
