#!/usr/bin/env python3
"""Makes the golden vectors that tests compare with, from Pillow and numpy (no code of ours).

Invocation: python3 make.py, in this folder, with pillow 13.0.0 and numpy 2.4.6.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent


def pictures():
    """A smooth picture with noise on it, in each encoding and colour that is taken."""
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:29, 0:37]
    waves = [128 + 100 * np.sin(x / (3 + c) + y / (5 - c)) for c in range(3)]
    noisy = np.stack(waves, 2) + random.normal(0, 12, (29, 37, 3))
    rgb = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
    alpha = Image.fromarray((x * 6).astype(np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    rgb.save(HERE / "rgb.png", optimize=True)
    rgba.save(HERE / "rgba.png", optimize=True)
    rgb.convert("L").save(HERE / "grey.png", optimize=True)
    rgb.convert("P", palette=Image.Palette.ADAPTIVE, colors=16).save(HERE / "palette.png")
    rgb.save(HERE / "lossless.webp", lossless=True, method=6)
    rgb.save(HERE / "rgb.jpg", quality=92, subsampling=0)


def case(file, colour, resize=None, crop=None, off_by=0):
    """One way through preprocessing and the pixels that come out. `off_by` allows for two things:
    JPEG decoders round differently, and Pillow 13 resizes columns before rows where the height
    shrinks far more than the width; earlier ones, and we, always take rows first."""
    image = Image.open(HERE / file).convert({"grey": "L", "rgb": "RGB"}[colour])
    if resize:
        width, height, kind, fit = resize
        size = (width, height)
        if fit == "cover":
            if width * image.height >= height * image.width:
                size = (width, image.height * width // image.width)
            else:
                size = (image.width * height // image.height, height)
        image = image.resize(size, getattr(Image.Resampling, kind.upper()))
        resize = {"width": width, "height": height, "filter": kind, "fit": fit}
    if crop:
        left, top = (image.width - crop[0]) // 2, (image.height - crop[1]) // 2
        image = image.crop((left, top, left + crop[0], top + crop[1]))
        crop = {"width": crop[0], "height": crop[1]}
    pixels = np.asarray(image)
    return {
        "file": file,
        "colour": colour,
        "resize": resize,
        "crop": crop,
        "width": image.width,
        "height": image.height,
        "off_by": off_by,
        "pixels": pixels.ravel().tolist(),
    }


def frame():
    """A frame of two rows of 392 values at 4 bits for the split id 00 01 .. 1f, written with
    numpy after the description in the codec's source, and the values it stands for."""
    random = np.random.default_rng(11)
    rows = np.clip(random.normal(1.5, 2.5, (2, 392)), 0, 7).astype(np.float32)
    step = np.float32(6) / np.float32(15)
    level = np.rint(np.clip(rows, 0, np.float32(6)) / step).astype(np.uint8)
    gray = level ^ (level >> 1)
    planes = [np.packbits((gray[r] >> b) & 1, bitorder="little") for r in (0, 1) for b in (3, 2, 1, 0)]
    payload = b"".join(plane.tobytes() for plane in planes)
    head = b"MSF1" + bytes([1, 0, 2, 4, 1, 0, 0, 0])
    head += (2).to_bytes(4, "little") + (392).to_bytes(4, "little") + bytes(range(32))
    head += len(payload).to_bytes(4, "little") + bytes(4)
    checksum = crc32c(head + payload)
    (HERE / "frame-v1.bin").write_bytes(head + checksum.to_bytes(4, "little") + payload)
    back = level.astype(np.float32) * step
    (HERE / "frame-v1.rows.f32").write_bytes(rows.tobytes())
    (HERE / "frame-v1.back.f32").write_bytes(back.tobytes())


def crc32c(data):
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def main():
    pictures()
    frame()
    cases = [
        case("rgb.png", "rgb"),
        case("rgb.png", "grey"),
        case("grey.png", "grey", (28, 28, "bilinear", "stretch")),
        case("grey.png", "rgb", (10, 10, "bilinear", "stretch")),
        case("rgb.png", "rgb", (7, 5, "bilinear", "stretch")),
        case("rgb.png", "rgb", (7, 61, "bicubic", "stretch")),
        case("rgb.png", "rgb", (53, 11, "bicubic", "stretch"), off_by=1),
        case("rgb.png", "rgb", (53, 61, "bicubic", "stretch")),
        case("rgba.png", "rgb", (16, 16, "bicubic", "cover"), (16, 16)),
        case("rgb.png", "grey", (20, 30, "bilinear", "cover"), (20, 30)),
        case("palette.png", "rgb", (9, 9, "bilinear", "stretch")),
        case("lossless.webp", "rgb", None, (5, 9)),
        case("rgb.jpg", "rgb", (12, 12, "bilinear", "stretch"), off_by=3),
        case("rgb.jpg", "grey", off_by=3),
    ]
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in cases)
    (HERE / "pillow.json").write_text("[" + rows + "]\n")


if __name__ == "__main__":
    main()
