"""Group a side's weights into units that belong together, in the order in which modules are first called.

A unit usually holds the weights of one module. Each layer and direction of an LSTM is a unit of its own, and so is
the matrix that a ReversibleEmbedding uses for its reverse pass. The weights of a module of unknown kind are units of
their own too, unless their names say which is the matrix and which the bias.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from parity.core.groups import grouped
from parity.pairs.weights.names import parent
from parity.pairs.weights.patterns import Shape
from parity.runtime.survey import Module, Survey, Weight

# The common name of a weight's role, by the attribute that holds it on either side.
ROLES = {
    "weight": "weight", "kernel": "weight", "gamma": "weight", "scale": "weight", "embeddings": "weight",
    "in_proj_weight": "weight", "weight_ih": "weight", "alpha": "weight", "w": "weight",
    "bias": "bias", "beta": "bias", "in_proj_bias": "bias", "bias_ih": "bias", "b": "bias",
    "running_mean": "mean", "moving_mean": "mean", "running_var": "variance", "moving_variance": "variance",
    "weight_hh": "recurrent", "recurrent_kernel": "recurrent", "bias_hh": "recurrent_bias",
    "depthwise_kernel": "depthwise", "pointwise_kernel": "pointwise",
    "original": "weight", "original1": "weight", "weight_v": "weight", "v": "weight",  # of a weight that is normalised
    "original0": "gain", "weight_g": "gain", "g": "gain",
}  # fmt: skip
# Words in the kind of a module, and the family that decides the layout of its weights; the first word that fits counts.
FAMILIES = {
    "conv_transpose": "conv_transpose", "convtranspose": "conv_transpose", "depthwise": "depthwise",
    "separable": "separable", "linear_io": "linear_io", "conv": "conv", "einsum": "einsum", "linear": "linear",
    "dense": "linear", "attention": "attention", "embedding": "embedding", "norm": "norm", "prelu": "prelu",
    "lstm": "lstm", "gru": "gru", "rnn": "rnn",
}  # fmt: skip
# Kinds that are certain to be what their names say; of others, such as a custom layer MyDense, only running can tell.
CERTAIN = re.compile(
    r"(grouped_|dilated_)?(conv_transpose[123]d|conv[123]d)|depthwise_conv[12]d|separable_conv[12]?d?|linear(_io)?"
    r"|einsum_dense|(batch|layer|group|rms|instance)_norm|(reversible_)?embedding|lstm|gru|rnn|prelu|attention"
)
RECURRENT = ("lstm", "gru", "rnn")
Order = Literal["calls", "creation"]
PARAMETRIZED = re.compile(r"\.?(parametrizations\.\w+)$")  # torch.nn.utils.parametrize, behind the module's path
TORCH_LAYER = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)_l(\d+)(_reverse)?$")


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """Weights by their common roles.

    `label` is the name that the unit is known by: its module's, and what tells it from other units of that module.
    `chosen` is that part of the label which somebody chose, without the names that a framework counted. `certain`
    says whether the module's kind is sure to be what its name says; `facts` are the module's. `defined` is the number
    of the module in the order of definition. `alias` says that torch ties the weight to another unit's. `image` is the
    shape, channels first, that torch flattens before the matrix, `made` that which it makes of its outputs, `part` that
    which it may flatten to a part of the matrix's inputs; () if none.
    `unused` says that its weights take part in nothing that is compared.
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
    image: Shape = ()
    made: Shape = ()
    part: Shape = ()
    unused: bool = False

    @property
    def counted(self) -> bool:
        """Return whether the framework made the unit's last name by counting."""
        return self.label.rpartition("/")[2] != self.chosen.rpartition("/")[2]

    @functools.cached_property
    def signature(self) -> tuple[Any, ...]:
        """Return what units must have in common to be able to take each other's place."""
        shapes = tuple(sorted((role, weight.shape) for role, weight in self.weights.items()))
        return self.family, self.certain, self.equation, self.facts.get("reset_after"), shapes

    @functools.cached_property
    def equation(self) -> str:
        """Return the equation of an EinsumDense with its axes named in order: Keras takes other letters for a key."""
        axes: dict[str, str] = {}
        given = str(self.facts.get("equation") or "")
        return "".join(axes.setdefault(c, chr(ord("a") + len(axes))) if c.isalpha() else c for c in given)


def units(survey: Survey, taken: Iterable[str] = (), order: Order = "calls") -> list[Unit]:
    """Group all weights but those in `taken` and buffers other than statistics, in order of calls or of creation."""
    excluded = set(taken)
    left = [weight for weight in survey.weights if weight.name not in excluded and not weight.constant]
    left += _aliases(survey, {weight.name: weight for weight in left})
    left = list(map(_of_its_module, left))
    modules = {module.path: module for module in survey.modules}
    defined = {path: number for number, path in enumerate(modules)}
    by_module = grouped(left, lambda weight: weight.module)
    numbers = positions(survey, order)
    paths = sorted(by_module, key=lambda path: numbers.get(path, (len(numbers), 0)))
    with_images, idle = _images(survey), set(survey.unused)
    return [
        replace(
            with_images(unit),
            defined=defined.get(unit.module, 0),
            unused=all(weight.name in idle for weight in unit.weights.values()),
        )
        for path in paths
        for unit in _units(survey, modules, path, by_module[path])
    ]


def _of_its_module(weight: Weight) -> Weight:
    """Return a weight as one of the module that computes with it, if torch keeps it for a parametrization."""
    if not (kept := PARAMETRIZED.search(weight.module)):
        return weight
    return msgspec.structs.replace(weight, module=weight.module[: kept.start()], role=f"{kept[1]}.{weight.role}")


def _role(weight: Weight) -> str:
    """Return the common name of a weight's role; "" if it has none."""
    return ROLES.get(weight.role.rpartition(".")[2], "")


def single_weight_units(unit: Unit) -> Iterator[Unit]:
    """Yield a unit for each single weight of a unit."""
    for weight in unit.weights.values():
        label = f"{unit.label}{'.' if unit.label else ''}{weight.role}"
        chosen = f"{unit.chosen}.{weight.role}"
        yield replace(
            bare_unit(weight), label=label, module=unit.module, chosen=chosen, alias=unit.alias, unused=unit.unused
        )


def bare_unit(weight: Weight) -> Unit:
    """Return a unit of one weight that goes by its own name, and of which nothing else is known."""
    return Unit(
        label=weight.name, module=weight.module, chosen=weight.name, family="", certain=False, facts={},
        weights={"weight": weight},
    )  # fmt: skip


def _aliases(survey: Survey, weights: dict[str, Weight]) -> list[Weight]:
    """Return torch's tied weights once more for each further module that has them; `name` remains the first name."""
    tied = survey.tied.items() if survey.side == "torch" else ()
    paths = ((alias.rpartition("."), weights[name]) for alias, name in tied if name in weights)
    return [msgspec.structs.replace(weight, module=module, role=role) for (module, _, role), weight in paths]


def positions(survey: Survey, order: Order = "calls") -> dict[str, tuple[int, int]]:
    """Return by path where modules, or the nearest called ones around them, stand in the order of calls or creation."""
    paths = survey.called if order == "calls" else survey.created or [module.path for module in survey.modules]
    first = {path: number for number, path in enumerate(paths)}
    found = {}
    for number, module in enumerate(survey.modules):
        around = module.path
        while around and around not in first:
            around = parent(around)
        found[module.path] = (first.get(around, 0), number)
    return found


def _images(survey: Survey) -> Callable[[Unit], Unit]:
    """Return a function that adds `image` and `made` to a unit of a convolutional network; to Keras's only `image`.

    Where torch pools by a function, Keras's layer may show the image, whose channels are last there.
    """
    convolutional = any("conv" in module.kind.lower() for module in survey.modules)
    outputs = survey.outputs if convolutional else []
    first = {seen.module: number for number, seen in reversed(list(enumerate(outputs)))}

    def with_images(unit: Unit) -> Unit:
        weight = unit.weights.get("weight")
        if unit.family != "linear" or weight is None or len(weight.shape) != 2 or unit.module not in first:
            return unit
        size = weight.shape[survey.side == "torch"]
        earlier = reversed(outputs[: first[unit.module]])  # those of another size are of another head
        before = (seen.shape for seen in earlier if math.prod(seen.shape[1:]) == size)
        if survey.side == "keras":
            *space, channels = _image(before, size) or (0,)
            return replace(unit, image=(channels, *space) if space else ())
        called = survey.called[survey.called.index(unit.module) + 1 :] if unit.module in survey.called else []
        behind = (survey.arguments[path][0] for path in called if path in survey.arguments)
        image, made = _image(before, size), _image(behind, weight.shape[0])
        nearest = (seen.shape[1:] for seen in reversed(outputs[: first[unit.module]]) if len(seen.shape) > 2)
        part = next(nearest, ()) if not image else ()
        return replace(unit, image=image, made=made, part=part if math.prod(part) < size else ())

    return with_images


def _image(shapes: Iterable[Shape], size: int) -> Shape:
    """Return the first shape of a sample that has further axes, if all before it are of so many elements, as it is."""
    for shape in shapes:
        if math.prod(shape[1:]) != size:
            return ()
        if len(shape) > 2:
            return shape[1:]
    return ()


def _units(survey: Survey, modules: dict[str, Module], path: str, weights: list[Weight]) -> list[Unit]:
    """Return the units of one module's weights."""
    module = modules.get(path) or Module(path=path, kind="")
    family = _family(module.kind)
    # A tied weight goes by the name of only one of the modules that hold it.
    aliases = {
        weight.name
        for weight in weights
        if survey.side == "torch" and weight.name != f"{weight.module}.{weight.role}".removeprefix(".")
    }
    recurrent = _recurrent(modules, path)
    if recurrent:
        return _layers(recurrent, weights)

    def unit(own: list[Weight], alias: bool = False) -> Unit:
        return _unit(module, {_role(weight) or "weight": weight for weight in own}, alias=alias)

    roles = [_role(weight) for weight in weights]
    if family == "embedding" and any(weight.role == "reverse_embeddings" for weight in weights):
        reverse: dict[str, Any] = {"end": "/reverse", "family": "linear", "certain": True}
        settings = ((weight, reverse if weight.role == "reverse_embeddings" else {}) for weight in weights)
        return [_unit(module, {"weight": weight}, **how) for weight, how in settings]
    if all(roles) and len(set(roles)) == len(roles):
        return [unit(weights, alias=bool(aliases))]
    unambiguous = [weight for weight, role in zip(weights, roles, strict=True) if role and roles.count(role) == 1]
    main = [unit(unambiguous)] if family and any(_role(weight) == "weight" for weight in unambiguous) else []
    rest = [weight for weight in weights if not main or weight not in unambiguous]
    return main + [
        single for weight in rest for single in single_weight_units(unit([weight], alias=weight.name in aliases))
    ]


def _unit(module: Module, weights: dict[str, Weight], end: str = "", **known: Any) -> Unit:
    """Return a unit of weights by role; `end` tells it from others of the module, `known` are fields set otherwise."""
    label, chosen = (module.path if given is None else given for given in (module.label, module.chosen))
    kind = {"family": _family(module.kind), "certain": bool(CERTAIN.fullmatch(module.kind)), **known}
    return Unit(label=label + end, module=module.path, chosen=chosen + end, facts=module.facts, weights=weights, **kind)


def _family(kind: str) -> str:
    lower = kind.lower()
    return next((family for word, family in FAMILIES.items() if word in lower), "")


def _recurrent(modules: dict[str, Module], path: str) -> Module | None:
    """Return the recurrent module that has the weights of the module at `path`, its own or those of its cell."""
    module = modules.get(path)
    if not module or _family(module.kind) not in RECURRENT:
        return None
    parent = modules.get(re.split(r"/[^/]*$", path)[0])
    return parent if parent and parent.path != path and _family(parent.kind) in RECURRENT else module


def one_bias(survey: Survey, path: str) -> bool:
    """Return whether a module is a Keras GRU (or its cell) with reset_after=False, which has a single bias."""
    recurrent = _recurrent({module.path: module for module in survey.modules}, path)
    return recurrent is not None and recurrent.facts.get("reset_after") is False


def _layers(module: Module, weights: list[Weight]) -> list[Unit]:
    """Split a recurrent module's weights into layers and directions, which torch numbers in their names."""
    parts: dict[str, dict[str, Weight]] = {}
    for weight in weights:
        match = TORCH_LAYER.match(weight.role)
        part = f".{match[2]}{'.reverse' if match[3] else ''}" if match else ""
        role = ROLES.get(match[1] if match else weight.role, weight.role)
        parts.setdefault(part, {})[role] = weight
    # A cell of torch's goes by the name of its class, as somebody's own does, but its weights go by torch's names.
    known = {"certain": True} if any(weight.role == "weight_ih" for weight in weights) else {}
    return [_unit(module, roles, part, **known) for part, roles in parts.items()]


def are_other_vectors(torch: Unit, keras: Unit) -> bool:
    """Return whether two vectors have names of different meaning, such as a scale and an offset."""
    weights = torch.weights["weight"], keras.weights["weight"]
    roles = {_role(weight) for weight in weights}
    return all(len(weight.shape) < 2 for weight in weights) and "" not in roles and len(roles) > 1
