#!/usr/bin/env python3
"""Trains the default model on Fashion-MNIST and writes it as one ONNX file with three exits.

Invocation (numpy, torch and onnx; more than an hour on two cores):

    apt install dataset-fashion-mnist
    python3 models/training/train.py --out /tmp/fashion.onnx

Each step quantises what crosses between segments to 4 or 8 bits or not at all, so that the later
segments learn to live with it; the early exits also learn from the last one's answers. The last
of the runs that the committed weights come from was `--init ... --epochs 5 --rate 0.04
--cutout 0.1 --seed 1`, in bfloat16. Training again gives other weights: calibrate the thresholds
anew, run evaluate.py and put its figures into models/README.md.
"""

import argparse
import time

import torch
from torch.nn import functional as F

import data
from network import Network

BITS = [(0, 0), (8, 8), (4, 4), (8, 4)]
WEIGHTS = (0.7, 0.8, 1.0)
DISTILLATION, DISTILLATION_TEMPERATURE = 0.5, 2.0


def augment(images, generator, cutout):
    """Shifts by up to 2 pixels, mirrors half of them, blanks 8x8 in a share of them."""
    count, side = len(images), torch.arange(28)
    padded = F.pad(images, (2, 2, 2, 2))
    random = lambda low, high: torch.randint(low, high, (count,), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    right, down = random(0, 5), random(0, 5)
    columns = torch.where(mirrored[:, None], 27 - side, side) + right[:, None]
    rows = side + down[:, None]
    images = padded[torch.arange(count)[:, None, None], 0, rows[:, :, None], columns[:, None, :]]
    left, top = random(-4, 24)[:, None], random(-4, 24)[:, None]
    blanked = torch.rand(count, generator=generator) < cutout
    across = (side >= left) & (side < left + 8)
    along = (side >= top) & (side < top + 8)
    hole = along[:, :, None] & across[:, None, :] & blanked[:, None, None]
    return images.masked_fill(hole, 0.0)[:, None]


def loss_of(outputs, labels):
    """Cross entropy of every exit, and what the early ones differ from the last."""
    loss = sum(w * F.cross_entropy(logits, labels) for w, logits in zip(WEIGHTS, outputs))
    temperature = DISTILLATION_TEMPERATURE
    teacher = F.softmax(outputs[-1].detach() / temperature, 1)
    for weight, logits in zip(WEIGHTS, outputs[:-1]):
        student = F.log_softmax(logits / temperature, 1)
        difference = F.kl_div(student, teacher, reduction="batchmean")
        loss = loss + DISTILLATION * weight * temperature**2 * difference
    return loss


@torch.no_grad()
def accuracies(network, images, labels):
    """Share of right answers of each exit, in percent."""
    network.eval()
    right = [0, 0, 0]
    for start in range(0, len(images), 1000):
        batch = images[start : start + 1000, None].float() / 255
        for index, logits in enumerate(network(batch)):
            right[index] += int((logits.argmax(1) == labels[start : start + 1000]).sum())
    return [round(100 * count / len(images), 2) for count in right]


def train(network, images, labels, validation, options):
    """Runs all epochs with one cycle of the learning rate."""
    generator = torch.Generator().manual_seed(options.seed)
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 5e-4}, {"params": others, "weight_decay": 0}]
    optimiser = torch.optim.SGD(groups, lr=options.rate, momentum=0.9, nesterov=True)
    steps = len(images) // options.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.rate, total_steps=steps * options.epochs,
        pct_start=0.25, div_factor=10, final_div_factor=1e3,
    )
    start = time.time()
    for epoch in range(options.epochs):
        network.train()
        order, total = torch.randperm(len(images), generator=generator), 0.0
        for step in range(steps):
            chosen = order[step * options.batch : (step + 1) * options.batch]
            x = augment(images[chosen][:, None].float() / 255, generator, options.cutout)
            bits = BITS[int(torch.randint(0, len(BITS), (1,), generator=generator))]
            loss = loss_of(network(x, bits), labels[chosen])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        exits = accuracies(network, *validation)
        print(f"epoch {epoch}: loss {total / steps:.4f}, validation {exits} %,"
              f" {time.time() - start:.0f} s", flush=True)


def export(network, path):
    """Writes the network with its three outputs, batch size open, shapes of inner tensors left
    out: wrong leftovers there would make a cut-out part fail to load."""
    import onnx

    network.eval()
    names = ["logits1", "logits2", "logits3"]
    torch.onnx.export(
        network, (torch.zeros(1, 1, 28, 28),), str(path), input_names=["image"],
        output_names=names, opset_version=17, dynamo=False,
        dynamic_axes={name: {0: "N"} for name in ["image", *names]},
    )
    model = onnx.load(path)
    del model.graph.value_info[:]
    onnx.save(model, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=data.FOLDER)
    parser.add_argument("--out", required=True, help="the ONNX file; weights go to the same name + .pt")
    parser.add_argument("--init", help="start from the weights of an earlier run")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--cutout", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, help="train on the first so many only, for a trial")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    images, labels = data.read_set(options.data, "train")
    images, labels = torch.from_numpy(images.copy()), torch.from_numpy(labels.copy()).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1234))
    held_out, rest = order[: data.VALIDATION], order[data.VALIDATION :][: options.images]
    network = Network()
    if options.init:
        network.load_state_dict(torch.load(options.init))
    validation = (images[held_out], labels[held_out])
    train(network, images[rest], labels[rest], validation, options)
    torch.save(network.state_dict(), options.out + ".pt")
    export(network, options.out)


if __name__ == "__main__":
    main()
