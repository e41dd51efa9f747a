"""Fashion-MNIST as arrays, from the four idx files of Debian's package dataset-fashion-mnist."""

import gzip
from pathlib import Path

import numpy as np

FOLDER = Path("/usr/share/datasets/fashion-mnist")
VALIDATION = 5000


def read_idx(path):
    """The array in an idx file of unsigned bytes, gzipped or not."""
    data = Path(path).read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def read_set(folder, name):
    """Images and labels of `train` or `t10k`."""
    folder = Path(folder)
    images = read_idx(next(folder.glob(f"{name}-images-idx3-ubyte*")))
    labels = read_idx(next(folder.glob(f"{name}-labels-idx1-ubyte*")))
    return images, labels


def as_input(images):
    """The model's input for images of unsigned bytes."""
    return images[:, None].astype(np.float32) / np.float32(255)
