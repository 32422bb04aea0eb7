"""The tree of a model's modules, by paths: the one walk that all recording asks."""

from torch import nn

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
