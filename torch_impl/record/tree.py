"""The tree of a model's modules, by paths: the one walk that all recording asks; and the kind of each module.

Kinds have names that both sides share; with them go the facts about a module that matter for the mapping.
"""

from typing import Any

import torch
from torch import nn

from parity.core.plain import setting, settings
from torch_impl.record.pair.outputs import flat
from torch_impl.strategies.branch_parallel import BranchedAttention


def named(model: nn.Module) -> dict[str, nn.Module]:
    """Return every module by its first path; the model's is ""."""
    return dict(model.named_modules())


def called(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules whose calls can be compared, by path, the model itself among them.

    The layers of a BranchedAttention are left out: in nn.MultiheadAttention, which it replaces, the projections are not
    modules that are called.
    """
    modules = named(model)
    inner = tuple(f"{path}." for path, module in modules.items() if isinstance(module, BranchedAttention))
    return {path: module for path, module in modules.items() if not path.startswith(inner)}


def inner(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules within the model whose calls can be compared, by path."""
    return {path: module for path, module in called(model).items() if path}


def leaves(model: nn.Module) -> set[str]:
    """Return the paths of the modules that can be compared and contain no other such module."""
    paths = called(model)
    return set(paths) - {path.rpartition(".")[0] for path in paths if path}


def paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of every module whose calls can be compared."""
    return {module: path for path, module in called(model).items()}


AXES = (1, 2, 3)  # that a convolution or a pool may have
# The classes of each kind; the first kind that has a module's class counts.
KINDS: dict[str, type | tuple[type, ...]] = {
    "linear": nn.Linear,
    **{f"conv{axes}d": getattr(nn, f"Conv{axes}d") for axes in AXES},
    **{f"conv_transpose{axes}d": getattr(nn, f"ConvTranspose{axes}d") for axes in AXES},
    "batch_norm": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    "layer_norm": nn.LayerNorm,
    "group_norm": nn.GroupNorm,
    "rms_norm": nn.RMSNorm,
    "instance_norm": (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    "embedding": nn.Embedding,
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn": nn.RNN,
    "attention": (nn.MultiheadAttention, BranchedAttention),
    "prelu": nn.PReLU,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softmax": nn.Softmax,
    **{f"max_pool{axes}d": getattr(nn, f"MaxPool{axes}d") for axes in AXES},
    **{f"average_pool{axes}d": getattr(nn, f"AvgPool{axes}d") for axes in AXES},
    "flatten": nn.Flatten,
    "dropout": (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
}
# Classes of libraries that are not imported here, by module and class name.
OTHERS = {
    ("transformers.pytorch_utils", "Conv1D"): "linear_io",
    ("transformers.models.t5.modeling_t5", "T5LayerNorm"): "rms_norm",
    ("transformers.activations", "GELUActivation"): "gelu",
    ("transformers.activations", "GELUTanh"): "gelu",
    ("transformers.activations", "PytorchGELUTanh"): "gelu",
    ("transformers.activations", "NewGELUActivation"): "gelu",
    ("transformers.activations", "SiLUActivation"): "silu",
}
TANH = ("GELUTanh", "PytorchGELUTanh", "NewGELUActivation")
GATES = {"lstm": "ifgo", "gru": "rzn"}  # the order in which torch packs them
# The attributes that hold each fact, in PyTorch or in other libraries.
FACTS = {
    "groups": ("groups", "num_groups"),
    "stride": ("stride",),
    "padding": ("padding",),
    "dilation": ("dilation",),
    "heads": ("num_heads", "num_attention_heads", "n_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "layers": ("num_layers",),
    "bidirectional": ("bidirectional",),
    "projection": ("proj_size",),
    "epsilon": ("eps", "variance_epsilon"),
    "rate": ("p",),
}


def kind(module: nn.Module) -> str:
    """Return a kind from the tables, or else the name of the module's class."""
    kind_name = next((name for name, classes in KINDS.items() if isinstance(module, classes)), None)
    classes = [(key.__module__, key.__name__) for key in type(module).__mro__]
    kind_name = kind_name or next((OTHERS[key] for key in classes if key in OTHERS), None)
    name = type(module).__name__
    return kind_name or ("rms_norm" if name.endswith("RMSNorm") else name)


def facts(module: nn.Module) -> dict[str, Any]:
    """Return what the mapping may need to know about a module besides its kind."""
    result, name = settings(module, FACTS), kind(module)
    if name == "gelu":
        tanh = getattr(module, "approximate", "none") == "tanh" or type(module).__name__ in TANH
        result["form"] = "tanh" if tanh else "exact"
    elif name in GATES:
        result["gates"] = GATES[name]
    if isinstance(module, nn.RNNBase):
        result["dropout"] = setting(module, ["dropout"])
    return result


def passed(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a user's module is given: query, key and value; none for another with submodules."""
    is_attention = kind(module) == "attention"
    if not is_attention and next(module.children(), None) is not None:
        return []
    return list(flat((*args, *kwargs.values())))[: 3 if is_attention else None]


def arguments(module: nn.Module, given: tuple[Any, ...], leaf: bool) -> list[torch.Tensor]:
    """Return the tensors among the positional arguments of a call.

    For attention: query, key and value. For a module with submodules: the first tensor only, since the frameworks pass
    different further arguments.
    """
    tensors = [argument for argument in given if isinstance(argument, torch.Tensor)]
    if kind(module) == "attention":
        return tensors[:3]
    return tensors if leaf else tensors[:1]
