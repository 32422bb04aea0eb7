"""A side's weights in units that belong together: a module's own, in the order in which modules are first called.

An LSTM's layers and directions are a unit each, and so is what a ReversibleEmbedding reads backwards. Weights of
a module of no known kind are a unit each too, unless their names say which is the matrix and which the bias.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from parity.pairs.weights import names
from parity.trace.survey import Module, Survey, Weight

# The common names of roles, by both sides' attributes.
ROLES = {
    "weight": "weight", "kernel": "weight", "gamma": "weight", "scale": "weight", "embeddings": "weight",
    "in_proj_weight": "weight", "weight_ih": "weight", "alpha": "weight", "w": "weight",
    "bias": "bias", "beta": "bias", "in_proj_bias": "bias", "bias_ih": "bias", "b": "bias",
    "running_mean": "mean", "moving_mean": "mean", "running_var": "variance", "moving_variance": "variance",
    "weight_hh": "recurrent", "recurrent_kernel": "recurrent", "bias_hh": "recurrent_bias",
    "depthwise_kernel": "depthwise", "pointwise_kernel": "pointwise",
}  # fmt: skip
# A word in a module's kind, and the family that its weights are laid out by; the first counts.
FAMILIES = {
    "conv_transpose": "conv_transpose", "convtranspose": "conv_transpose", "depthwise": "depthwise",
    "separable": "separable", "linear_io": "linear_io", "conv": "conv", "einsum": "einsum", "linear": "linear",
    "dense": "linear", "attention": "attention", "embedding": "embedding", "norm": "norm", "prelu": "prelu",
    "lstm": "lstm", "gru": "gru", "rnn": "rnn",
}  # fmt: skip
# Kinds that are what their names say; of others, a custom layer called MyDense say, only running can tell.
CERTAIN = re.compile(
    r"(grouped_|dilated_)?(conv_transpose[123]d|conv[123]d)|depthwise_conv[12]d|separable_conv[12]?d?|linear(_io)?"
    r"|einsum_dense|(batch|layer|group|rms|instance)_norm|(reversible_)?embedding|lstm|gru|rnn|prelu|attention"
)
RECURRENT = ("lstm", "gru", "rnn")
TORCH_LAYER = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)_l(\d+)(_reverse)?$")


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """Weights by common role. `label`: the name that it is known by, its module's and what tells it from others there.

    `chosen`: what of the label somebody chose, without the names that a framework counted. `defined`: the number of
    its module in the order of definition. `alias`: torch ties its weight to another unit's.
    """

    label: str
    module: str
    chosen: str
    family: str
    certain: bool
    facts: dict[str, Any]
    weights: dict[str, Weight]
    defined: int = 0
    alias: bool = False

    @property
    def counted(self) -> bool:
        """Whether nobody chose its last name."""
        return self.label.rpartition("/")[2] != self.chosen.rpartition("/")[2]

    @functools.cached_property
    def signature(self) -> tuple[Any, ...]:
        """Units of one signature can take each other's place."""
        shapes = tuple(sorted((role, weight.shape) for role, weight in self.weights.items()))
        return self.family, self.certain, self.facts.get("equation"), self.facts.get("reset_after"), shapes


def units(survey: Survey, taken: Iterable[str] = ()) -> list[Unit]:
    """All weights but those in `taken`, and buffers that are no statistics; units in the order of first calls."""
    elsewhere = set(taken)
    left = [weight for weight in survey.weights if weight.name not in elsewhere and not weight.constant]
    left += _aliases(survey, {weight.name: weight for weight in left})
    modules = {module.path: module for module in survey.modules}
    defined = {path: number for number, path in enumerate(modules)}
    by_module: dict[str, list[Weight]] = {}
    for weight in left:
        by_module.setdefault(weight.module, []).append(weight)
    order = execution(survey)
    paths = sorted(by_module, key=lambda path: order.get(path, (len(order), 0)))
    found = (unit for path in paths for unit in _units(survey, modules, path, by_module[path]))
    return [replace(unit, defined=defined.get(unit.module, 0)) for unit in found]


def bare(unit: Unit) -> Iterator[Unit]:
    """A unit for each of its weights."""
    for weight in unit.weights.values():
        label = f"{unit.label}{'.' if unit.label else ''}{weight.role}"
        chosen = f"{unit.chosen}.{weight.role}"
        yield Unit(
            label=label, module=unit.module, chosen=chosen, family="", certain=False, facts={},
            weights={"weight": weight}, alias=unit.alias,
        )  # fmt: skip


def _aliases(survey: Survey, known: dict[str, Weight]) -> list[Weight]:
    """Further names of torch's tied weights, as weights of the modules that have them; `name` remains the first."""
    if survey.side != "torch":
        return []
    found = []
    for alias, name in survey.tied.items():
        module, _, role = alias.rpartition(".")
        if name in known:
            found.append(msgspec.structs.replace(known[name], module=module, role=role))
    return found


def execution(survey: Survey) -> dict[str, tuple[int, int]]:
    """Where each module stands: its first call, or that of the nearest module around it, then its definition."""
    called = {path: number for number, path in enumerate(survey.called)}
    order = {}
    for number, module in enumerate(survey.modules):
        around = module.path
        while around and around not in called:
            around = re.split(r"[./][^./]*$", around)[0] if re.search(r"[./]", around) else ""
        order[module.path] = (called.get(around, 0), number)
    return order


def _units(survey: Survey, modules: dict[str, Module], path: str, weights: list[Weight]) -> list[Unit]:
    module = modules.get(path) or Module(path=path, kind="")
    family = _family(module.kind)
    aliases = {weight.name for weight in weights if survey.side == "torch" and not _own(weight)}
    around = _recurrent(modules, path)
    if around:
        return _layers(around, weights)
    unit = functools.partial(_unit, module, family)
    roles = [ROLES.get(weight.role, "") for weight in weights]
    if family == "embedding" and any(weight.role == "reverse_embeddings" for weight in weights):
        return [unit([weight], reverse=weight.role == "reverse_embeddings") for weight in weights]
    if all(roles) and len(set(roles)) == len(roles):
        return [unit(weights, alias=bool(aliases))]
    known = [weight for weight, role in zip(weights, roles, strict=True) if role and roles.count(role) == 1]
    main = [unit(known)] if family and any(ROLES[weight.role] == "weight" for weight in known) else []
    rest = [weight for weight in weights if not main or weight not in known]
    return main + [single for weight in rest for single in bare(unit([weight], alias=weight.name in aliases))]


def _label(module: Module) -> str:
    return module.path if module.label is None else module.label


def _chosen(module: Module) -> str:
    return module.path if module.chosen is None else module.chosen


def _own(weight: Weight) -> bool:
    return weight.name == (f"{weight.module}.{weight.role}" if weight.module else weight.role)


def _unit(module: Module, family: str, weights: list[Weight], reverse: bool = False, alias: bool = False) -> Unit:
    roles = {ROLES.get(weight.role, "weight"): weight for weight in weights}
    return Unit(
        label=_label(module) + ("/reverse" if reverse else ""),
        module=module.path,
        chosen=_chosen(module) + ("/reverse" if reverse else ""),
        family="linear" if reverse else family,
        certain=reverse or bool(CERTAIN.fullmatch(module.kind)),
        facts=module.facts,
        weights=roles,
        alias=alias,
    )


def _family(kind: str) -> str:
    lower = kind.lower()
    return next((family for word, family in FAMILIES.items() if word in lower), "")


def _recurrent(modules: dict[str, Module], path: str) -> Module | None:
    """The recurrent module that has these weights, itself or in its cell."""
    module = modules.get(path)
    if not module or _family(module.kind) not in RECURRENT:
        return None
    above = modules.get(re.split(r"/[^/]*$", path)[0])
    return above if above and above.path != path and _family(above.kind) in RECURRENT else module


def one_bias(survey: Survey, path: str) -> bool:
    """Whether this is a Keras GRU (or its cell) that resets before the matrix, and so has a single bias."""
    around = _recurrent({module.path: module for module in survey.modules}, path)
    return around is not None and around.facts.get("reset_after") is False


def _layers(module: Module, weights: list[Weight]) -> list[Unit]:
    """torch numbers layers and directions in the roles; Keras has a layer for each."""
    parts: dict[str, dict[str, Weight]] = {}
    for weight in weights:
        found = TORCH_LAYER.match(weight.role)
        part = f".{found[2]}{'.reverse' if found[3] else ''}" if found else ""
        role = ROLES.get(found[1] if found else weight.role, weight.role)
        parts.setdefault(part, {})[role] = weight
    label, chosen, family = _label(module), _chosen(module), _family(module.kind)
    return [
        Unit(
            label=label + part, module=module.path, chosen=chosen + part, family=family, certain=True,
            facts=module.facts, weights=roles,
        )
        for part, roles in parts.items()
    ]  # fmt: skip


def telling(labels: list[str]) -> list[str]:
    """Of each label the part that it means, by the words that it does not share with all of the others."""
    found = [names.words(label) for label in labels]
    shared = set(found[0]).intersection(*found[1:])
    parts = set(names.PARTS.values())
    return [next((word for word in reversed(words) if word in parts - shared), "") for words in found]
