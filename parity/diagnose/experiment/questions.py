"""Which modules of a pair are asked for what they do differently, and about which tensor."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from parity.config.pair import UNKNOWN
from parity.diagnose.place import around
from parity.results import CaseResult, Cause, worst
from parity.runtime.experiment import Question, Tensor
from parity.runtime.survey import Survey
from parity.trace import keys
from parity.trace.keys import MODEL, number, plain
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping as Weights
from parity.trace.mapping import Match, Matching
from parity.verdict.traces import Unequal

MOST: Final = 3  # modules that are asked
Both = tuple[Question, Question]  # torch's and Keras's


class Guilty(NamedTuple):
    """A module with an unknown cause, in torch's names, and the first tensor that differs there."""

    where: str
    first: Unequal


def is_unknown(cause: Cause) -> bool:
    """Return whether a cause has no name."""
    return cause.id == UNKNOWN


def guilty(
    result: CaseResult,
    unequal: Sequence[Unequal],
    places: Mapping[str, str],
    first: str = "",
    which: Callable[[Cause], bool] = is_unknown,
) -> list[Guilty]:
    """Return the modules of some of the causes whose difference is one of the first forward pass.

    `first`: the key of the tensor of the first divergence, for which a module around it may be taken to be responsible.
    `which`: whether a cause is one of them.
    """
    places_of = [(tensor, _place(tensor, places)) for tensor in unequal if is_forward(tensor)]
    moved = _moved(result, [tensor for tensor, _ in places_of if keys.key(tensor.kind, tensor.name) == first])
    modules = []
    for where in dict.fromkeys(cause.where for cause in filter(which, result.causes)):
        tensors = [tensor for tensor, path in places_of if plain(where) in (plain(path), plain(tensor.name))]
        # The place may be around a module whose inputs could not be compared.
        if where != MODEL:
            tensors = tensors or [tensor for tensor, _ in places_of if tensor.name.startswith(f"{plain(where)}.")]
        if moved and moved.where == where:
            modules.append(moved)
        elif tensors:
            # Of a module's outputs one may differ visibly behind one that float32 cannot see.
            seen = next((tensor for tensor in tensors if tensor.verdict == result.verdict), tensors[0])
            modules.append(Guilty(where, seen))
    return modules[:MOST]


def earliest(unequal: Sequence[Unequal], places: Mapping[str, str]) -> Guilty | None:
    """Return the module whose difference in the first forward pass comes first, even if float32 cannot see it."""
    first = next(filter(is_forward, unequal), None)
    return Guilty(_place(first, places), first) if first else None


def _moved(result: CaseResult, first: Sequence[Unequal]) -> Guilty | None:
    """Return the first difference if it is that of a tensor within the module that is taken to be responsible."""
    where = plain(result.first_divergence.name) if result.first_divergence else MODEL
    within = (tensor for tensor in first if where == MODEL or plain(tensor.name).startswith(f"{where}."))
    return next((Guilty(where, tensor) for tensor in within), None)


def is_forward(tensor: Unequal) -> bool:
    """Return whether a tensor belongs to the first forward pass."""
    return tensor.step == 0 and tensor.kind in ("input", "activation")


def _place(tensor: Unequal, places: Mapping[str, str]) -> str:
    return places.get(keys.key(tensor.kind, plain(tensor.name)), plain(tensor.name))


class Asked:
    """Makes the questions to both sides of a pair, from torch's survey, all that differs, and what corresponds."""

    def __init__(
        self,
        torch: Survey,
        matching: Matching,
        unequal: Sequence[Unequal],
        traces: tuple[Trace, Trace],
        weights: Weights | None = None,
    ):
        self.torch, self._matching = torch, matching
        self._weights = [(entry.torch, entry.keras) for entry in weights.entries] if weights else []
        self._owners = {seen.key: seen.module for seen in torch.outputs}
        self._shapes = {seen.key: seen.shape for seen in torch.outputs}
        self._differ = {plain(tensor.name) for tensor in unequal if tensor.kind == "activation"}
        self.forward = list(filter(is_forward, unequal))  # what differs in the first forward pass
        self._folders = [str(trace.folder) for trace in traces]

    def questions(self, asked: Guilty) -> tuple[Question, Question] | None:
        """Return the question to torch and the question to Keras; None where a tensor cannot be found on a side."""
        tensor = asked.first
        name = tensor.name
        if tensor.kind == "activation" and name.startswith(MODEL):
            key = keys.key(tensor.kind, name)
            torch = Tensor(key=key, module="", kind="output")
            keras: Tensor | None = torch
        elif tensor.kind == "activation":
            torch, keras = self._returned(name)
        else:
            torch, keras = self._given(name)
        if keras is None:
            return None
        scope = self._scope(plain(asked.where), torch.module)
        layer = self._layer(scope, keras.module)
        if not self._has_all_of(scope, layer):
            scope = layer = ""
        mine, theirs = self._folders
        return (
            Question(module=scope, tensor=torch, innocent=self._innocent("torch"), own=mine, other=theirs),
            Question(module=layer, tensor=keras, innocent=self._innocent("keras"), own=theirs, other=mine),
        )

    @property
    def outputs(self) -> list[Unequal]:
        """Return the model's outputs that differ in the first forward pass."""
        return [tensor for tensor in self.forward if tensor.name.startswith(MODEL)]

    def next_call(self, first: Unequal) -> Unequal | None:
        """Return what a module returns when it is called next, if that differs as what it `first` returned does."""
        name = f"{plain(first.name)}#{number(first.name) + 1}"
        return next(
            (each for each in self.forward if each.kind == first.kind == "activation" and each.name == name), None
        )

    def is_behind(self, first: Unequal, keras: str) -> bool:
        """Return whether a difference may follow from an earlier one that calling a layer of Keras's keeps.

        That is so if the whole model is called, and what stands before in the same part of it differs as much.
        """
        part = first.name.partition(".")[0]
        before = itertools.takewhile(lambda tensor: tensor != first, self.forward)
        earlier = (tensor for tensor in before if tensor.name.partition(".")[0] == part)
        return not keras and any(worst([tensor.verdict, first.verdict]) == tensor.verdict for tensor in earlier)

    def _returned(self, name: str) -> tuple[Tensor, Tensor | None]:
        """Return where both sides find a tensor that a module returns."""
        key, shape = keys.key("activation", name), list(self._shapes.get(name, ()))
        mine = Tensor(key=key, module=plain(name), kind="returned", number=number(name), shape=shape)
        for match in self._matching.matches:
            if match.torch == name:
                return mine, replace(mine, module=plain(match.keras), number=number(match.keras), axes=match.axes)
        return mine, None

    def _given(self, name: str) -> tuple[Tensor, Tensor | None]:
        """Return where both sides find a tensor that a module is given."""
        module, key = plain(name), keys.key("input", name)
        mine = Tensor(key=key, module=module, kind="given", number=number(name))
        shapes = self.torch.arguments.get(module, [])
        matched = ((plain(match.keras), match.inputs) for match in self._of(module) if match.inputs is not None)
        fed = ((each.keras, each.axes) for each in self._matching.fed if each.torch == module)
        layer = next(itertools.chain(matched, fed), None)
        if layer is None or not shapes:
            return mine, None
        path, axes = layer
        shape = list(shapes[number(name) % len(shapes)])
        return mine, replace(mine, module=path, each=len(shapes), axes=axes, shape=shape)

    def _of(self, module: str) -> list[Match]:
        """Return the matches of what a module of torch returns."""
        return [match for match in self._matching.matches if self._owners.get(match.torch) == module]

    def _scope(self, where: str, inner: str) -> str:
        """Return torch's path of the module in which to look: it must be around the one that has the tensor."""
        scope = "" if where == MODEL else where
        return scope if inner == scope or f"{inner}.".startswith(f"{scope}.") else ""

    def _layer(self, scope: str, inner: str) -> str:
        """Return the path of the layer of Keras that corresponds to a module and is around the one with the tensor."""
        while scope:
            paths = (plain(match.keras) for match in self._of(scope))
            if path := next((path for path in paths if f"{inner}/".startswith(f"{path}/")), ""):
                return path
            scope = around(scope, list(self._owners.values()))
        return ""

    def _has_all_of(self, scope: str, layer: str) -> bool:
        """Return whether a layer of Keras's has all the weights that a module of torch's has.

        Where a module of torch's is several layers in Keras, as a stack of LSTMs is, the last one is only a part of it.
        """
        below = f"{scope}."
        theirs = [names for mine, names in self._weights if any(name.startswith(below) for name in mine)]
        return not (scope and layer) or all(name.startswith(f"{layer}/") for names in theirs for name in names)

    def _innocent(self, side: str) -> list[str]:
        """Return a side's modules that return the same as the other's."""
        equal = [match for match in self._matching.matches if plain(match.torch) not in self._differ]
        return sorted({plain(match.torch if side == "torch" else match.keras) for match in equal})


def wider(questions: Both) -> Both:
    """Return the questions as those about a module around the place."""
    return replace(questions[0], wider=True), replace(questions[1], wider=True)


def around_asked(questions: Both, asked: Both | None) -> Both:
    """Return the questions about a module around the one that both sides were asked about before."""
    tried = (asked[0].module, asked[1].module) if asked else ("", "")
    return replace(questions[0], tried=tried[0]), replace(questions[1], tried=tried[1])
