"""How the time of a comparison grows with the number of layers, and with their width.

    python benchmarks/growth.py [--layers=4,16,64] [--widths=32,512,2048]

Pre-norm transformer blocks in PyTorch and in Keras: with each number of layers of width 32, and with four layers of
each width, once right and once with another epsilon in the middle one's first norm. Prints seconds from the command to
the verdict. Exits 1 if a right port is no match, or if the epsilon is not named.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TORCH = """
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.down(self.up(self.norm2(x)).relu())


def build(layers, width):
    return nn.Sequential(*(Block(width) for _ in range(layers)), nn.LayerNorm(width))
"""
KERAS = """
import keras
from keras import layers as L


class Block(L.Layer):
    def __init__(self, width, epsilon):
        super().__init__()
        self.norm1, self.attention = L.LayerNormalization(epsilon=epsilon), L.MultiHeadAttention(4, width // 4)
        self.norm2, self.up, self.down = L.LayerNormalization(epsilon=1e-5), L.Dense(4 * width, "relu"), L.Dense(width)

    def call(self, x):
        normed = self.norm1(x)
        x = x + self.attention(normed, normed)
        return x + self.down(self.up(self.norm2(x)))


def build(layers, width, fault):
    blocks = [Block(width, 1e-3 if number == fault else 1e-5) for number in range(layers)]
    return keras.Sequential([*blocks, L.LayerNormalization(epsilon=1e-5)])
"""
PAIR = """[pair]
name = "growth"
torch = "growth_torch:build"
keras = "growth_keras:build"
kwargs = {{ layers = {layers}, width = {width} }}
keras_kwargs = {{ fault = {fault} }}

[inputs.x]
shape = [2, 8, {width}]
"""
WIDTH, LAYERS = 32, 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="4,16,64")
    parser.add_argument("--widths", default="32,512,2048")
    args = parser.parse_args()
    sizes = [(int(layers), WIDTH) for layers in args.layers.split(",")]
    sizes += [(LAYERS, int(width)) for width in args.widths.split(",") if (LAYERS, int(width)) not in sizes]
    print("layers  width  million weights  match, s  named, s")
    is_right = True
    with tempfile.TemporaryDirectory(prefix="parity-growth-") as scratch:
        folder = Path(scratch)
        (folder / "growth_torch.py").write_text(TORCH)
        (folder / "growth_keras.py").write_text(KERAS)
        for layers, width in sizes:
            (match, right), (named, causes) = (compared(folder, layers, width, fault) for fault in (-1, layers // 2))
            is_right &= right == [] and causes == [f"layer_norm.epsilon at {layers // 2}.norm1"]
            weights = layers * 12 * width**2 / 1e6
            print(f"{layers:6}  {width:5}  {weights:15.1f}  {match:8.0f}  {named:8.0f}", flush=True)
    return int(not is_right)


def compared(folder: Path, layers: int, width: int, fault: int) -> tuple[float, list[str]]:
    """Return the seconds of a comparison, and its causes; or its verdict, if that is neither match nor diverged."""
    (folder / "pair.toml").write_text(PAIR.format(layers=layers, width=width, fault=fault))
    start = time.perf_counter()
    command = [sys.executable, "-m", "parity.compare", "--pair=pair.toml", "--json=report.json", "--quiet"]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    (case,) = json.loads((folder / "report.json").read_text())["cases"]
    causes = [f"{cause['id']} at {cause['where']}" for cause in case["causes"]]
    return seconds, causes if case["verdict"] in ("match", "diverged") else [case["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
