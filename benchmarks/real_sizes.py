"""A pair of the size that people have, BERT-base: what a verdict takes, beside the two models by themselves.

    python benchmarks/real_sizes.py [--layers=12] [--train] [--epsilon]

Hugging Face's BertModel is compared with KerasHub's BertBackbone (needs the extra `public`), on 2 x 64 tokens: forward
and backward, or with --train two steps of Adam. Bare are both models in float32 and in float64, one forward and one
backward pass each. With --epsilon, one layer norm of the port has another epsilon. Memory is that of no file, by the
kind of process; disk is what the temporary folder holds at most. Exits 1 if the verdict is another than known.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

PAIR = """
[pair]
name = "bert_base"
torch = "bert_torch:build"
keras = "bert_keras:build"
kwargs = {{ layers = {layers} }}
keras_kwargs = {{ epsilon = {epsilon} }}
[outputs.hidden]
torch = "last_hidden_state"
keras = "sequence_output"
"""
INPUT = '[inputs.{}]\nshape = [2, 64]\ndtype = "int32"\nrange = {}\ntorch = "{}"\nkeras = "{}"\n'
INPUTS = (
    ("ids", [2, 30522], "input_ids", "token_ids"),
    ("mask", [1, 2], "attention_mask", "padding_mask"),
    ("segments", [0, 2], "token_type_ids", "segment_ids"),
)
TRAIN = '[train]\noptimizer = "adam"\nlearning_rate = 0.001\nsteps = 2\n'
TORCH = """
import time
import transformers

def build(layers):
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu_pytorch_tanh"}
    return transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers, **off), add_pooling_layer=False)

def bare(layers):
    import torch
    torch.set_num_threads(1)
    model, ids, took = build(layers), torch.randint(2, 30522, (2, 64)), 0.0
    for dtype in (torch.float32, torch.float64):
        model = model.to(dtype)
        start = time.perf_counter()
        model(ids).last_hidden_state.sum().backward()
        took += time.perf_counter() - start
    return took
"""
KERAS = """
import time
from keras_hub import models

def build(layers, epsilon=1e-12):
    sizes = {"num_heads": 12, "hidden_dim": 768, "intermediate_dim": 3072, "max_sequence_length": 512, "dropout": 0.0}
    model = models.BertBackbone(vocabulary_size=30522, num_layers=layers, **sizes)
    model.get_layer(f"transformer_layer_{layers // 2}")._feedforward_layer_norm.epsilon = epsilon
    return model

def bare(layers):
    import keras, numpy as np, tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    ids, took = np.random.default_rng(0).integers(2, 30522, (2, 64)), 0.0
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    for dtype in ("float32", "float64"):
        keras.config.set_floatx(dtype)
        model = build(layers)
        start = time.perf_counter()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs, training=True)["sequence_output"])
        tape.gradient(loss, model.trainable_variables)
        took += time.perf_counter() - start
    return took
"""
SIDES = ("torch", "keras")
KNOWN = {False: "subprecision", True: "diverged"}  # by --epsilon; TensorFlow's GELU has constants in float32
POLL = 0.25  # seconds


class Taken(NamedTuple):
    """What a command took; `memory`: GB by kind of process, `disk`: GB."""

    seconds: float
    memory: Counter[str]
    disk: float
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--epsilon", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parity-real-sizes-") as scratch:
        folder = Path(scratch)
        pair = PAIR.format(layers=args.layers, epsilon=1e-5 if args.epsilon else 1e-12)
        for name, text in (("bert_torch.py", TORCH), ("bert_keras.py", KERAS)):
            (folder / name).write_text(text)
        inputs = "".join(INPUT.format(*each) for each in INPUTS)
        (folder / "pair.toml").write_text(pair + inputs + TRAIN * args.train)
        bare = 0.0
        for side in SIDES:
            taken = run(folder, "-c", f"import bert_{side}; print(bert_{side}.bare({args.layers}))")
            bare += float(taken.output.split()[-1])
            print(f"{side} bare: {float(taken.output.split()[-1]):.1f} s, {max(taken.memory.values()):.1f} GB")
        taken = run(folder, "-m", "parity.compare", "--pair=pair.toml", "--json=report.json", "--quiet")
        (case,) = json.loads((folder / "report.json").read_text())["cases"]
    memory = ", ".join(f"{kind} {size:.1f}" for kind, size in sorted(taken.memory.items()))
    print(f"{case['verdict']} in {taken.seconds:.0f} s, {taken.seconds / bare:.1f} times the bare passes")
    print(f"GB of memory: {memory}; of disk: {taken.disk:.1f}")
    print("\n".join(f"{cause['id']} at {cause['where']}" for cause in case["causes"][:1]))
    return int(case["verdict"] != KNOWN[args.epsilon])


def run(folder: Path, *arguments: str) -> Taken:
    """Run Python in a folder, and watch the memory of all processes that it starts, and the disk."""
    environment = os.environ | {"TMPDIR": str(folder), "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    memory, disk = Counter[str](), 0.0
    reader = threading.Thread(target=lambda: outputs.append(process.communicate()[0].decode()))
    outputs: list[str] = []
    reader.start()
    while reader.is_alive():
        memory |= _memory(process.pid)
        held = subprocess.run(["du", "-sk", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # files may go
        disk = max(disk, int(held.stdout.split()[0]) / 1e6)
        reader.join(POLL)
    return Taken(time.perf_counter() - start, memory, disk, outputs[0])


def _memory(root: int) -> Counter[str]:
    """Return the memory of a process and those below it, in GB, by the package that they run."""
    found = Counter[str]()
    children = [root]
    for pid in children:
        try:
            for listed in Path(f"/proc/{pid}/task").glob("*/children"):  # of each thread
                children += map(int, listed.read_text().split())
            command = Path(f"/proc/{pid}/cmdline").read_text()
            status = Path(f"/proc/{pid}/status").read_text().split()
        except OSError:  # it has just ended
            continue
        kind = next((side for side in SIDES if f"{side}_impl" in command), "parent")
        if "RssAnon:" in status:
            found[kind] = max(found[kind], int(status[status.index("RssAnon:") + 1]) / 1e6)
    return found


if __name__ == "__main__":
    sys.exit(main())
