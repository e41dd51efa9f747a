"""Makes the crops that `crops.csv` lists, of the pictures that the scikit-image wheel ships.

Each becomes a PNG of 224 x 224 RGB pixels, in the folder `test` or `calibration`; no picture has
crops in both. Greyscale pictures become RGB with equal channels.

    python crops.py FOLDER          makes the crops
    python crops.py --draw          draws the list anew, as it was drawn, on standard output
"""

import argparse
import csv
import importlib.util
import math
import random
from functools import lru_cache
from pathlib import Path

from PIL import Image

LIST = Path(__file__).with_name("crops.csv")
SIDE = 224
# What two crops of a picture may have in common: intersection over union.
OVERLAP = {"calibration": 0.6, "test": 0.7}
SMALLEST = 150
SEED = 20

# Scales are measured on crops of the first list and tried on crops of the second.
CALIBRATION = ["camera.png", "chelsea.png", "color.png", "gravel.png", "rocket.jpg"]
TEST = [
    "astronaut.png",
    "brick.png",
    "cell.png",
    "clock_motion.png",
    "coffee.png",
    "coins.png",
    "grass.png",
    "horse.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "logo.png",
    "microaneurysms.png",
    "moon.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "page.png",
    "phantom.png",
    "retina.jpg",
    "text.png",
]
MOST = {"calibration": 60, "test": 250}


def pictures():
    [folder] = importlib.util.find_spec("skimage").submodule_search_locations
    return Path(folder) / "data"


def overlap(one, other):
    """Intersection over union of two squares (x, y, side)."""
    def shared(a, b, axis):
        return min(a[axis] + a[2], b[axis] + b[2]) - max(a[axis], b[axis])

    across, down = shared(one, other, 0), shared(one, other, 1)
    if across <= 0 or down <= 0:
        return 0.0
    both = across * down
    return both / (one[2] ** 2 + other[2] ** 2 - both)


def draw():
    """Squares of every picture: sides spread evenly on a log scale, places evenly."""
    rng = random.Random(SEED)
    rows = []
    for use, names in (("calibration", CALIBRATION), ("test", TEST)):
        for name in names:
            with Image.open(pictures() / name) as picture:
                width, height = picture.size
            largest = min(width, height)
            smallest = min(SMALLEST, largest)
            kept = []
            for _ in range(20_000):
                side = round(math.exp(rng.uniform(math.log(smallest), math.log(largest))))
                square = (rng.randint(0, width - side), rng.randint(0, height - side), side)
                if all(overlap(square, other) <= OVERLAP[use] for other in kept):
                    kept.append(square)
                if len(kept) == MOST[use]:
                    break
            for x, y, side in sorted(kept):
                rows.append((use, name, x, y, side, side, rng.randint(0, 1)))
    return rows


@lru_cache(maxsize=1)
def opened(name):
    with Image.open(pictures() / name) as picture:
        return picture.convert("RGB")


def make(folder):
    made = {}
    with LIST.open(newline="") as file:
        for row in csv.DictReader(file):
            x, y, width, height = (int(row[key]) for key in ("x", "y", "width", "height"))
            box = (x, y, x + width, y + height)
            crop = opened(row["file"]).resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box)
            if row["flip"] == "1":
                crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            target = folder / row["set"]
            target.mkdir(parents=True, exist_ok=True)
            number = made[row["set"]] = made.get(row["set"], 0) + 1
            crop.save(target / f"{number:04}-{Path(row['file']).stem}.png")
    for use, count in made.items():
        print(f"{folder / use}  {count} crops")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path, nargs="?")
    arguments.add_argument("--draw", action="store_true")
    given = arguments.parse_args()
    if given.draw:
        print("set,file,x,y,width,height,flip")
        for row in draw():
            print(",".join(map(str, row)))
    elif given.folder:
        make(given.folder)
    else:
        arguments.error("a folder for the crops")


if __name__ == "__main__":
    main()
