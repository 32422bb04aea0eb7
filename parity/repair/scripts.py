"""The scripts of --reproduce: one module of each model, alone, in at most 40 lines without anything of this project."""

from typing import Any, NamedTuple

from parity.repair.literals import code


class Script(NamedTuple):
    """What a script needs to know.

    Attributes:
        builder: the user's function, "module:function", and `arguments` what it is called with.
        search: the folders that the function's module is imported from.
        module: the path of the module in the model, as the side's own names have it.
        inputs: the number of tensors that it is given.
        leaf: which of the tensors that it returns is compared.
        training: whether it is called in training mode.
        seed: the seed of what the builder draws.
        axes: for Keras, the order of axes that makes its output torch's.
    """

    builder: str
    arguments: dict[str, Any]
    search: list[str]
    module: str
    inputs: int
    leaf: int
    training: bool
    seed: int
    axes: list[int]


TORCH = '''\
"""{title}, with the input and the weights that were recorded in arrays.npz."""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = {search}
import {package}

ARRAYS = np.load(Path(__file__).with_name("arrays.npz"))
torch.manual_seed({seed})
torch.set_default_dtype(torch.float64)
module = {builder}({arguments}).double().get_submodule("{module}").train({training})
weights = {{name[6:]: torch.from_numpy(ARRAYS[name]) for name in ARRAYS if name.startswith("torch/")}}
module.load_state_dict(weights, strict=False)
with torch.no_grad():
    returned = module(*(torch.from_numpy(ARRAYS[f"input{{i}}"]) for i in range({inputs})))
output = torch.utils._pytree.tree_leaves(returned)[{leaf}].numpy()
print("torch", type(module).__name__, output.dtype, output.shape, "mean", output.mean())
for side in ("torch", "keras"):
    difference = np.abs(output - ARRAYS[f"output_{{side}}"]).max()
    print(f"largest difference from what {{side}}'s module returned: {{difference:.3g}}")
'''
KERAS = '''\
"""{title}, with the input and the weights that were recorded in arrays.npz."""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np

sys.path[:0] = {search}
import {package}

ARRAYS = np.load(Path(__file__).with_name("arrays.npz"))
keras.utils.set_random_seed({seed})
keras.config.set_dtype_policy("float64")
keras.config.set_floatx("float64")


def named(parts, name):  # of several parts with one name, the further ones are numbered
    names = [part.name for part in parts]
    numbers = [names[:place].count(name) for place, name in enumerate(names)]
    return next(part for part, number in zip(parts, numbers) if name == part.name + f"_{{number}}" * (number > 0))


layer = {builder}({arguments})
for name in "{module}".split("/"):
    layer = named([each for each in layer._layers if not isinstance(each, keras.layers.InputLayer)], name)
inputs = [keras.ops.convert_to_tensor(ARRAYS[f"keras_input{{i}}"]) for i in range({inputs})]
layer(*inputs, training={training})  # makes the variables
for path in [key[6:] for key in ARRAYS if key.startswith("keras/")]:
    holder, *_ = *inner, name = [layer, *path.split("/")]
    for part in inner[1:]:
        holder = named(holder._layers, part)
    named(holder._trainable_variables + holder._non_trainable_variables, name).assign(ARRAYS[f"keras/{{path}}"])
output = np.array(keras.tree.flatten(layer(*inputs, training={training}))[{leaf}]).transpose({axes})
print("keras", type(layer).__name__, output.dtype, output.shape, "mean", output.mean())
for side in ("torch", "keras"):
    difference = np.abs(output.reshape(ARRAYS[f"output_{{side}}"].shape) - ARRAYS[f"output_{{side}}"]).max()
    print(f"largest difference from what {{side}}'s module returned: {{difference:.3g}}")
'''
TEMPLATES = {"torch": TORCH, "keras": KERAS}


def written(side: str, script: Script) -> str:
    """Return the text of one side's script."""
    package, _, function = script.builder.partition(":")
    arguments = ", ".join(f"{name}={code(value)}" for name, value in script.arguments.items())
    return TEMPLATES[side].format(
        title=f"{script.module} of {script.builder}, alone",
        search=script.search,
        package=package,
        builder=f"{package}.{function}",
        arguments=arguments,
        module=script.module,
        inputs=script.inputs,
        leaf=script.leaf,
        training=script.training,
        seed=script.seed,
        axes=script.axes,
    )
