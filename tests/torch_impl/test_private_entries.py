"""The private entries of torch that torch_impl uses: each is in ENTRIES, and the installed torch has each of them.

PyTorch may drop or change them in any release. Run the tests of this file and test_pretend*.py with the oldest and the
newest torch that pyproject.toml allows before its range is changed.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

PACKAGE = Path(__file__).parents[2] / "torch_impl"
# With the names of the arguments that torch_impl passes or takes, where Python can tell them.
ENTRIES: dict[str, tuple[str, ...]] = {
    "torch.Tensor._make_wrapper_subclass": (),
    "torch._C.DisableTorchFunction": (),
    "torch._C.TensorBase.data": (),
    "torch._C.TensorBase.device": (),
    "torch._C._DisableTorchDispatch": (),
    "torch._C._current_autograd_node": (),
    "torch._C._current_graph_task_id": (),
    "torch._C._disabled_torch_function_impl": (),
    "torch._C._dispatch_has_kernel_for_dispatch_key": (),
    "torch._C._get_fp32_precision_getter": (),
    "torch._C._len_torch_function_stack": (),
    "torch._C._nn._parse_to": (),
    "torch._C._swap_tensor_impl": (),
    "torch._VF": (),
    "torch._dynamo.utils.counters": (),
    "torch._has_compatible_shallow_copy_type": (),
    "torch._subclasses.fake_tensor.FakeTensorMode": (),
    "torch._tensor_str._str": ("self", "tensor_contents"),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": ("data", "dtype", "device", "requires_grad"),
    "torch._utils._rebuild_parameter": ("data", "requires_grad", "backward_hooks"),
    "torch.distributed.tensor._utils.compute_local_shape_and_global_offset": ("global_shape", "mesh", "placements"),
    "torch.nn.Module._apply": ("self", "fn", "recurse"),
    "torch.nn.modules.batchnorm._BatchNorm": (),
    "torch.nn.modules.module._global_forward_hooks": (),
    "torch.nn.modules.module._global_forward_hooks_always_called": (),
    "torch.nn.modules.module._global_forward_pre_hooks": (),
    "torch.nn.parallel._functions": (),
    "torch.nn.parallel._functions._streams": (),
    "torch.nn.parallel.data_parallel._get_available_device_type": (),
    "torch.ops.aten._index_put_impl_.default": (),
    "torch.ops.aten._pack_padded_sequence.default": (),
    "torch.ops.aten._pack_padded_sequence_backward.default": (),
    "torch.ops.aten._pad_packed_sequence.default": (),
    "torch.ops.aten._to_copy.default": (),
    "torch.overrides._get_current_function_mode_stack": (),
    "torch.overrides._pop_mode_temporarily": (),
    "torch.utils._device.DeviceContext.__init__": ("self", "device"),
    "torch.utils._device.DeviceContext.__torch_function__": ("self", "func", "types", "args", "kwargs"),
    "torch.utils._device._device_constructors": (),
    "torch.utils._python_dispatch.TorchDispatchMode": (),
    "torch.utils._pytree.tree_flatten": ("tree",),
    "torch.utils._pytree.tree_leaves": ("tree",),
    "torch.utils._pytree.tree_map": ("func", "tree"),
    "torch.utils._pytree.tree_unflatten": ("leaves", "treespec"),
    "torch.utils.data.dataloader._BaseDataLoaderIter.__next__": ("self",),
}
# Named by strings where they are replaced or called by name.
ENTRIES |= {
    "torch.optim.optimizer._global_optimizer_pre_hooks": (),
    "torch.utils._pytree.tree_flatten_with_path": ("tree",),
    "torch.utils._pytree.tree_map_with_path": ("func", "tree"),
    "torch.autograd.graph._engine_run_backward": ("t_outputs",),
    "torch.nn.utils.clip_grad._clip_grads_with_norm_": ("parameters", "max_norm", "total_norm", "foreach"),
}
# PyTorch has them if it is built with CUDA; virtual_functions.py makes them if they are missing.
CUDA_ONLY = ("_scatter", "_gather", "_broadcast_coalesced")


def is_private(path: str) -> bool:
    return any(part.startswith("_") for part in path.split(".") if not part.startswith("__"))


def imported(tree: ast.AST) -> dict[str, str]:
    """What the names of a file mean, as far as they are torch's."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(alias.asname or "torch"): alias.name for alias in node.names if alias.name == "torch"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
    return names


def used(path: Path) -> Iterator[str]:
    """The private entries of torch that a file names, the longest path of each."""
    tree = ast.parse(path.read_text())
    names = imported(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    yield from (name for name in names.values() if is_private(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            head, _, rest = ast.unparse(node).partition(".")
            if head in names and is_private(f"{names[head]}.{rest}"):
                yield f"{names[head]}.{rest}"


def covers(entry: str, name: str) -> bool:
    """Whether an entry is the name, an object that holds it, or a part of it."""
    return f"{name}.".startswith(f"{entry}.") or f"{entry}.".startswith(f"{name}.")


@pytest.mark.slow
def test_every_private_entry_is_in_the_table():
    found = {name: path.name for path in sorted(PACKAGE.rglob("*.py")) for name in used(path)}
    missing = {name: file for name, file in found.items() if not any(covers(entry, name) for entry in ENTRIES)}
    assert not missing, f"add to ENTRIES: {missing}"
    assert "torch._C._nn._parse_to" in found
    stale = [entry for entry in ENTRIES if not any(covers(entry, name) or mentioned(entry) for name in found)]
    assert not stale, f"no longer used: {stale}"


def mentioned(entry: str) -> bool:
    """Whether a file of torch_impl has the entry's own name in a string."""
    name = entry.rpartition(".")[2]
    return any(f'"{name}"' in path.read_text() for path in PACKAGE.rglob("*.py"))


def value_of(entry: str) -> object:
    """The entry; raises AttributeError or ImportError if the installed torch lacks it."""
    parts = entry.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            value = vars(value)[part] if end == len(parts) else getattr(value, part)
        return value
    raise ImportError(entry)


def check(entry: str, arguments: tuple[str, ...]) -> str:
    """What is wrong with an entry of the installed torch; "" if nothing is."""
    try:
        value = value_of(entry)
    except (AttributeError, ImportError):
        return f"torch {torch.__version__} has no {entry}, which torch_impl uses: narrow the range in pyproject.toml"
    if not arguments:
        return ""
    names = tuple(inspect.signature(value).parameters)
    lacking = [name for name in arguments if name not in names]
    return f"{entry} of torch {torch.__version__} takes {names}, no {lacking}" if lacking else ""


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_installed_torch_has_the_entry(entry):
    assert not (wrong := check(entry, ENTRIES[entry])), wrong


def test_a_missing_entry_and_a_changed_one_are_told():
    assert "has no torch._C._gone, which torch_impl uses" in check("torch._C._gone", ())
    assert "takes ('self', 'fn', 'recurse'), no ['other']" in check("torch.nn.Module._apply", ("fn", "other"))


@pytest.mark.parametrize("name", CUDA_ONLY)
def test_what_needs_cuda_is_still_called_by_data_parallel(name):
    assert f"torch._C.{name}(" in inspect.getsource(importlib.import_module("torch.nn.parallel.comm"))
