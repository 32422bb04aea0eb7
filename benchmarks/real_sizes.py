"""Pairs of the sizes that people have: what a verdict takes, beside the two models by themselves.

    python benchmarks/real_sizes.py [--model=bert] [--train] [--epsilon]

Hugging Face's BERT-base, GPT-2 small, T5-small and ViT-B/16 are compared with KerasHub's, and its ResNet-50 with the
one of keras.applications (needs the extra `public`): forward and backward, or with --train two steps of Adam; of a
GPT-2 with a billion weights the forward pass alone. Bare are both models in float32 and in float64, one pass each. With
--epsilon, a layer norm of BERT's port has another epsilon. Memory is that of no file, by the kind of process; disk is
what the temporary folder holds at most. Exits 1 if the verdict is another than known.
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


class Model(NamedTuple):
    """A pair: its verdict, what its two builders return, the inputs of its file, and the arguments of bare calls."""

    verdict: str
    torch: str
    keras: str
    inputs: str
    backward: bool = True


def ids(name: str, numbers: list[int], torch: str, keras: str, shape: tuple[int, ...] = (1, 64)) -> str:
    """Return a section of inputs that are whole numbers."""
    names = f'torch = "{torch}"\nkeras = "{keras}"\n'
    return f'[inputs.{name}]\nshape = {list(shape)}\ndtype = "int32"\nrange = {numbers}\n{names}'


IMAGE = """[inputs.image]
shape = [1, 3, 224, 224]
torch = "pixel_values"
keras_layout = "n c h w -> n h w c"
"""
HIDDEN = '[outputs.hidden]\ntorch = "last_hidden_state"\n'
OF_GPT2 = (
    ids("ids", [0, 50257], "input_ids", "token_ids") + ids("mask", [1, 2], "attention_mask", "padding_mask") + HIDDEN
)
# TensorFlow's GELU has constants in float32; keras.applications' batch norms have an epsilon of 1.001e-5.
MODELS = {
    "bert": Model(
        "subprecision",
        "hf.BertModel(hf.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, "
        "hidden_act='gelu_pytorch_tanh'), add_pooling_layer=False)",
        "with_epsilon(hub.BertBackbone(vocabulary_size=30522, num_layers=12, num_heads=12, hidden_dim=768, "
        "intermediate_dim=3072, max_sequence_length=512, dropout=0.0), epsilon)",
        ids("ids", [2, 30522], "input_ids", "token_ids", (2, 64))
        + ids("mask", [1, 2], "attention_mask", "padding_mask", (2, 64))
        + ids("segments", [0, 2], "token_type_ids", "segment_ids", (2, 64))
        + HIDDEN
        + 'keras = "sequence_output"\n',
    ),
    "gpt2": Model(
        "subprecision",
        "hf.GPT2Model(hf.GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False))",
        "hub.GPT2Backbone(vocabulary_size=50257, num_layers=12, num_heads=12, hidden_dim=768, intermediate_dim=3072, "
        "max_sequence_length=1024, dropout=0.0)",
        OF_GPT2,
    ),
    "billion": Model(
        "subprecision",
        "hf.GPT2Model(hf.GPT2Config(n_embd=2048, n_layer=20, n_head=16, embd_pdrop=0.0, attn_pdrop=0.0, "
        "resid_pdrop=0.0, use_cache=False))",
        "hub.GPT2Backbone(vocabulary_size=50257, num_layers=20, num_heads=16, hidden_dim=2048, intermediate_dim=8192, "
        "max_sequence_length=1024, dropout=0.0)",
        OF_GPT2,
        backward=False,
    ),
    "t5": Model(
        "match",
        "hf.T5Model(hf.T5Config(vocab_size=32128, dropout_rate=0.0, use_cache=False))",
        "hub.T5Backbone(vocabulary_size=32128, num_layers=6, num_heads=8, hidden_dim=512, intermediate_dim=2048, "
        "key_value_dim=64, dropout=0.0, activation='relu', use_gated_activation=False, tie_embedding_weights=True)",
        ids("source", [3, 32128], "input_ids", "encoder_token_ids")
        + ids("source_mask", [1, 2], "attention_mask", "encoder_padding_mask")
        + ids("words", [3, 32128], "decoder_input_ids", "decoder_token_ids")
        + ids("words_mask", [1, 2], "decoder_attention_mask", "decoder_padding_mask")
        + HIDDEN
        + 'keras = "decoder_sequence_output"\n',
    ),
    "vit": Model(
        "subprecision",
        "hf.ViTModel(hf.ViTConfig(layer_norm_eps=1e-6), add_pooling_layer=False)",
        "hub.ViTBackbone(image_shape=(224, 224, 3), patch_size=(16, 16), num_layers=12, num_heads=12, hidden_dim=768, "
        "mlp_dim=3072)",
        IMAGE + HIDDEN,
    ),
    "resnet50": Model(
        "diverged",
        "hf.ResNetModel(hf.ResNetConfig(downsample_in_bottleneck=True))",
        "keras.applications.ResNet50(include_top=False, weights=None, input_shape=(224, 224, 3))",
        IMAGE + HIDDEN + 'keras_layout = "n c h w -> n h w c"\n',
    ),
}
PAIR = """[pair]
name = "{name}"
torch = "{name}_torch:build"
keras = "{name}_keras:build"
keras_kwargs = {{ epsilon = {epsilon} }}
backward = {backward}
"""
TRAIN = '[train]\noptimizer = "adam"\nlearning_rate = 0.001\nsteps = 2\n'
TORCH = """
import time, tomllib
import transformers as hf

def build():
    return {model}

def bare(file):
    import torch
    torch.set_num_threads(1)
    model, took = build(), 0.0
    read = tomllib.load(open(file, "rb"))
    given = read["inputs"].values()
    numbers = {{each["torch"]: torch.randint(*each["range"], each["shape"]) for each in given if "range" in each}}
    for dtype in (torch.float32, torch.float64):
        model = model.to(dtype)
        floats = {{each["torch"]: torch.randn(each["shape"], dtype=dtype) for each in given if "range" not in each}}
        start = time.perf_counter()
        with torch.set_grad_enabled(read["pair"]["backward"]):
            total = model.eval()(**numbers, **floats).last_hidden_state.sum()
        if total.requires_grad:
            total.backward()
        took += time.perf_counter() - start
    return took
"""
KERAS = """
import time, tomllib
import keras
from keras_hub import models as hub

def with_epsilon(model, epsilon):
    model.get_layer("transformer_layer_6")._feedforward_layer_norm.epsilon = epsilon
    return model

def build(epsilon=1e-12):
    return {model}

def bare(file):
    import numpy as np, tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    drawn, took = np.random.default_rng(0), 0.0
    read = tomllib.load(open(file, "rb"))
    given = list(read["inputs"].values())
    for dtype in ("float32", "float64"):
        keras.config.set_floatx(dtype)
        model = build()
        inputs = {{each["keras"]: drawn.integers(*each["range"], each["shape"]) for each in given if "range" in each}}
        inputs = inputs or tf.constant(drawn.standard_normal((1, 224, 224, 3)), dtype)
        start = time.perf_counter()
        if read["pair"]["backward"]:
            with tf.GradientTape() as tape:
                loss = sum(tf.reduce_sum(each) for each in tf.nest.flatten(model(inputs)))
            tape.gradient(loss, model.trainable_variables)
        else:
            model(inputs)
        took += time.perf_counter() - start
    return took
"""
SIDES = ("torch", "keras")
POLL = 0.25  # seconds


class Taken(NamedTuple):
    """What a command took; `memory`: GB by kind of process, `disk`: GB."""

    seconds: float
    memory: Counter[str]
    disk: float
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="bert")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--epsilon", action="store_true")
    args = parser.parse_args()
    name, model = args.model, MODELS[args.model]
    with tempfile.TemporaryDirectory(prefix="parity-real-sizes-") as scratch:
        folder = Path(scratch)
        (folder / f"{name}_torch.py").write_text(TORCH.format(model=model.torch))
        (folder / f"{name}_keras.py").write_text(KERAS.format(model=model.keras))
        backward = str(model.backward).lower()
        pair = PAIR.format(name=name, epsilon=1e-5 if args.epsilon else 1e-12, backward=backward)
        (folder / "pair.toml").write_text(pair + model.inputs + TRAIN * args.train)
        bare = 0.0
        for side in SIDES:
            taken = run(folder, "-c", f"import {name}_{side} as it; print(it.bare('pair.toml'))")
            bare += float(taken.output.split()[-1])
            print(
                f"{side} bare: {float(taken.output.split()[-1]):.1f} s, {max(taken.memory.values()):.1f} GB", flush=True
            )
        taken = run(folder, "-m", "parity.compare", "--pair=pair.toml", "--json=report.json", "--quiet")
        (case,) = json.loads((folder / "report.json").read_text())["cases"]
    memory = ", ".join(f"{kind} {size:.1f}" for kind, size in sorted(taken.memory.items()))
    print(f"{case['verdict']} in {taken.seconds:.0f} s, {taken.seconds / bare:.1f} times the bare passes")
    print(f"GB of memory: {memory}; of disk: {taken.disk:.1f}")
    print("\n".join(f"{cause['id']} at {cause['where']}" for cause in case["causes"][:1]))
    return int(case["verdict"] != ("diverged" if args.epsilon else model.verdict))


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
