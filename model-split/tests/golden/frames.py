#!/usr/bin/env python3
"""Reads the frames in the folder `frames` as the codec's source describes them (no code of ours)
and compares with what they are pinned to decode to.

Invocation: python3 frames.py, in this folder, with numpy 2.4.6; with zstandard 0.25.0 installed the
frames of coder zstd are read too.
"""

import struct
from pathlib import Path

import numpy as np

from make import crc32c

try:
    import zstandard
except ImportError:
    zstandard = None

FRAMES = Path(__file__).resolve().parent / "frames"


def scales_of(name):
    """The scales of a cut, which are not in its frames."""
    scales = [(-8.0 - at % 4, 8.0) for at in range(20)]
    return {"tensor": scales[:1], "channel": scales}.get(name.split("-")[0])


class Bits:
    """Numbers of a few bits, from the least significant bit of each byte on."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        value = 0
        for bit in range(count):
            value |= (self.data[self.at // 8] >> self.at % 8 & 1) << bit
            self.at += 1
        return value

    def rest(self):
        while self.at % 8:
            assert self.take(1) == 0
        return self.data[self.at // 8 :]


def table(alphabet, data):
    bits = Bits(data)
    rest = bits.take(8)
    frequencies, before = [0] * alphabet, 0
    for symbol in range(alphabet):
        if symbol == rest:
            continue
        digits = before
        if bits.take(1):
            if not bits.take(1):
                digits -= 1
            elif not bits.take(1):
                digits += 1
            else:
                digits = bits.take(4)
        before = digits
        if digits:
            kept = min(digits - 1, 3)
            frequencies[symbol] = (1 << kept | bits.take(kept)) << (digits - 1 - kept)
    frequencies[rest] = 4096 - sum(frequencies)
    assert frequencies[rest] > 0
    return frequencies, bits.rest()


def symbols(count, frequencies, data):
    lanes = 1 if count < 4096 else 4
    states = list(struct.unpack_from(f"<{lanes}I", data))
    at, words, shift = 4 * lanes, 0, 0
    while True:
        words |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    end = at + 2 * words
    starts = np.concatenate([[0], np.cumsum(frequencies)])
    owner = np.repeat(np.arange(len(frequencies)), frequencies)
    out = np.zeros(count, np.uint8)
    for index in range(count):
        lane = index % lanes
        slot = states[lane] % 4096
        symbol = owner[slot]
        state = int(frequencies[symbol]) * (states[lane] // 4096) + slot - int(starts[symbol])
        if state < 1 << 15:
            state = state * 65536 + struct.unpack_from("<H", data, at)[0]
            at += 2
        states[lane], out[index] = state, symbol
    assert at == end and states == [1 << 15] * lanes
    return out, data[end:]


def levels_of(payload, coder, rows, elements, units, bits):
    """Levels, and what stands behind them."""
    if coder == 2:
        form, data, centres = payload[0], payload[1:], None
        if form:
            reader = Bits(data)
            centres = np.array([reader.take(bits) for _ in range(rows * units)])
            data = reader.rest()
        frequencies, data = table(1 << bits, data)
        levels, behind = symbols(rows * elements, frequencies, data)
        levels = levels.astype(int).reshape(rows * units, -1)
        if form:
            levels = (levels + centres[:, None]) % (1 << bits)
        return levels.reshape(rows, elements), behind
    plane = -(-elements // 8)
    planes = np.frombuffer(payload, np.uint8, rows * bits * plane).reshape(rows, bits, plane)
    gray = np.unpackbits(planes, axis=2, bitorder="little")[:, :, :elements]
    binary = np.bitwise_xor.accumulate(gray, axis=1).astype(int)
    weights = 1 << np.arange(bits)[::-1]
    return (binary * weights[None, :, None]).sum(1), payload[rows * bits * plane :]


def decode(name, data):
    magic, version, coder, mode, bits, element, zero, units = struct.unpack_from("<4s6BH", data)
    rows, elements = struct.unpack_from("<2I", data, 12)
    length, raw_units, checksum = struct.unpack_from("<3I", data, 52)
    payload = data[64:]
    assert (magic, version, zero, length) == (b"MSF1", 1, 0, len(payload))
    assert crc32c(data[:60] + payload) == checksum
    units = units or 1
    size = {0: {1: 4, 7: 8}[element], 1: 2}.get(mode)
    if coder == 1:
        payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=1 << 24)
    if mode < 2:
        if coder == 2:
            lanes = []
            for _ in range(size):
                form, payload = payload[0], payload[1:]
                if form:
                    frequencies, payload = table(256, payload)
                    lane, payload = symbols(rows * elements, frequencies, payload)
                else:
                    lane = np.frombuffer(payload, np.uint8, rows * elements)
                    payload = payload[rows * elements :]
                lanes.append(lane)
            assert payload == b""
            payload = np.stack(lanes, 1).tobytes()
        if mode == 1:
            return np.frombuffer(payload, np.float16).astype(np.float32).tobytes()
        return payload
    levels, behind = levels_of(payload, coder, rows, elements, units, bits)
    if mode == 3:
        own = np.frombuffer(behind, np.float32, 2 * rows * units).reshape(-1, 2)
        behind = behind[8 * rows * units :]
    else:
        own = np.tile(np.array(scales_of(name), np.float32), (rows, 1))
    lo, hi = own[:, :1], own[:, 1:]
    step = (hi - lo) / np.float32((1 << bits) - 1)
    values = lo + levels.reshape(len(own), -1).astype(np.float32) * step
    values = values.reshape(rows * units, -1) if raw_units else values
    for _ in range(raw_units):
        (unit,) = struct.unpack_from("<I", behind)
        raw = behind[4 : 4 + 4 * values.shape[1]]
        values[unit] = np.frombuffer(raw, np.float32)
        behind = behind[4 + len(raw) :]
    assert behind == b""
    return values.astype(np.float32).tobytes()


def main():
    for path in sorted(FRAMES.glob("*.bin")):
        name = path.stem
        if name.endswith("-zstd") and zstandard is None:
            print(name, "skipped: zstandard is not installed")
            continue
        mode = name.removesuffix("-none").removesuffix("-zstd").removesuffix("-order-0")
        assert decode(name, path.read_bytes()) == (FRAMES / f"{mode}.back").read_bytes(), name
        print(name, path.stat().st_size, "bytes, as described")


if __name__ == "__main__":
    main()
