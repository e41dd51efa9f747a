#!/usr/bin/env python3
"""Makes the golden vectors that tests compare with, from Pillow and numpy (no code of ours).

Invocation: python3 make.py, in this folder, with pillow 13.0.0 and numpy 2.4.6.
"""

import hashlib
import json
import struct
import zlib
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


def png(name, array, depth, kind, chunks=()):
    """A PNG of a depth or colour type that Pillow does not write."""

    def chunk(title, data):
        tail = struct.pack(">I", zlib.crc32(title + data))
        return struct.pack(">I", len(data)) + title + data + tail

    rows = b""
    for row in array.reshape(array.shape[0], -1):
        bits = "".join(format(int(value), f"0{depth}b") for value in row)
        bits += "0" * (-len(bits) % 8)
        rows += b"\0" + bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    head = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], depth, kind, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    file = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
    (HERE / name).write_bytes(file)


def kinds():
    """Every kind of picture that is taken, small."""
    random = np.random.default_rng(23)
    channels = {0: 1, 2: 3, 4: 2, 6: 4}
    for depth, kind in [(1, 0), (2, 0), (4, 0), (8, 4), (16, 0), (16, 2), (16, 4), (16, 6)]:
        array = random.integers(0, 1 << depth, (5, 7, channels[kind]))
        png(f"kind-{depth}-{kind}.png", array, depth, kind)
    palette = random.integers(0, 256, 12).astype(np.uint8).tobytes()
    array = random.integers(0, 4, (5, 7, 1))
    png("kind-2-3.png", array, 2, 3, [(b"PLTE", palette), (b"tRNS", bytes([0, 128]))])
    png("kind-2-3-grey.png", array, 2, 3, [(b"PLTE", bytes([9] * 3 + [50] * 3 + [77] * 3 + [200] * 3))])
    tall = np.arange(190)[:, None] * 3 % 256 + random.integers(0, 9, (190, 23))
    Image.fromarray(np.clip(tall, 0, 255).astype(np.uint8)).save(HERE / "tall.png", optimize=True)
    rgb = Image.open(HERE / "rgb.png")
    rgb.convert("L").save(HERE / "grey.jpg", quality=90)
    rgb.save(HERE / "rgb-420.jpg", quality=85, subsampling=2, progressive=True)
    y, x = np.mgrid[0:29, 0:37]
    inks = [128 + 100 * np.sin(x / (3 + c) + y / (5 - c)) for c in range(4)]
    inks = np.clip(np.stack(inks, 2), 0, 255).astype(np.uint8)
    Image.frombytes("CMYK", (37, 29), inks.tobytes()).save(HERE / "cmyk.jpg", quality=95)
    Image.open(HERE / "rgba.png").save(HERE / "rgba.webp", lossless=True, method=6)


FILTERS = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
SIZES = [(37, 29), (36, 28), (19, 15), (74, 58), (75, 59), (13, 61), (61, 13), (37, 5), (5, 29)]
SIZES += [(1, 1), (3, 87), (111, 2), (33, 11), (23, 40), (24, 41)]


def matrix():
    """Every filter at every size, from pictures of odd and of even sides. Of the tensor that comes
    out, only the SHA-256 of its float32 bytes, in both layouts."""
    scale, bias = np.array([1 / 255, 0.5, 1 / 127.5]), np.array([0.25, -3.0, -1.0])
    out = []
    for file, colour in [("rgb.png", "rgb"), ("grey.png", "grey"), ("tall.png", "grey")]:
        image = Image.open(HERE / file).convert({"grey": "L", "rgb": "RGB"}[colour])
        for kind in FILTERS:
            for size in SIZES:
                resized = image.resize(size, getattr(Image.Resampling, kind.upper()))
                pixels = np.asarray(resized).reshape(size[1], size[0], -1).astype(np.float64)
                depth = pixels.shape[2]
                values = (pixels * scale[:depth] + bias[:depth]).astype("<f4")
                layouts = {"nhwc": values, "nchw": values.transpose(2, 0, 1)}
                digests = {
                    name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
                    for name, array in layouts.items()
                }
                resize = {"width": size[0], "height": size[1], "filter": kind, "fit": "stretch"}
                out.append({"file": file, "colour": colour, "resize": resize, **digests})
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in out)
    (HERE / "pillow-resize.json").write_text("[" + rows + "]\n")


def case(file, colour, resize=None, crop=None, off_by=0):
    """One way through preprocessing and the pixels that come out. `off_by` is for JPEG, whose
    decoders round differently."""
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
    if file == "kind-16-0.png":
        # Of 16-bit grey alone Pillow clips at 255; of all other 16-bit kinds it takes the upper
        # 8 bits, and so do we of this one.
        high = (np.asarray(Image.open(HERE / file)).astype(int) >> 8).astype(np.uint8)
        pixels = high if colour == "grey" else np.stack([high] * 3, 2)
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
    kinds()
    matrix()
    frame()
    cases = [
        case("rgb.png", "rgb"),
        case("rgb.png", "grey"),
        case("grey.png", "grey", (28, 28, "bilinear", "stretch")),
        case("grey.png", "rgb", (10, 10, "bilinear", "stretch")),
        case("rgb.png", "rgb", (7, 5, "bilinear", "stretch")),
        case("rgb.png", "rgb", (7, 61, "bicubic", "stretch")),
        case("rgb.png", "rgb", (53, 11, "bicubic", "stretch")),
        case("rgb.png", "rgb", (53, 61, "bicubic", "stretch")),
        case("rgba.png", "rgb", (16, 16, "bicubic", "cover"), (16, 16)),
        case("rgb.png", "grey", (20, 30, "bilinear", "cover"), (20, 30)),
        case("palette.png", "rgb", (9, 9, "bilinear", "stretch")),
        case("lossless.webp", "rgb", None, (5, 9)),
        case("rgb.jpg", "rgb", (12, 12, "bilinear", "stretch"), off_by=3),
        case("rgb.jpg", "grey", off_by=3),
        case("rgb.png", "rgb", (16, 16, "lanczos", "cover"), (16, 16)),
        case("tall.png", "grey", (15, 15, "hamming", "cover"), (14, 13)),
        case("rgba.webp", "rgb"),
        case("rgba.webp", "grey"),
    ]
    for kind in ["1-0", "2-0", "4-0", "8-4", "16-0", "16-2", "16-4", "16-6", "2-3", "2-3-grey"]:
        cases += [case(f"kind-{kind}.png", "grey"), case(f"kind-{kind}.png", "rgb")]
    for kind, off_by in [("grey", 2), ("rgb-420", 8), ("cmyk", 4)]:
        cases += [case(f"{kind}.jpg", "grey", off_by=off_by), case(f"{kind}.jpg", "rgb", off_by=off_by)]
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in cases)
    (HERE / "pillow.json").write_text("[" + rows + "]\n")


if __name__ == "__main__":
    main()
