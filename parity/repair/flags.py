"""The flags --repair and --reproduce of parity.compare, which follow up the divergence of a pair.

--reproduce writes the module that diverges first as a script for each side, with its input and weights in an .npz, and
runs both. The scripts have at most 40 lines, import the user's own functions and need nothing of this project.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from parity import cli
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.pairs.weights import transfer
from parity.repair.edit import code
from parity.repair.search import Repairing
from parity.results import CaseResult, Divergence
from parity.runtime import survey
from parity.runtime.runner import Worker
from parity.subjects.run import FollowUp
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.tensorfile import TensorFile

ARRAYS = "arrays.npz"
LONGEST = 300  # seconds that a script may take
Arrays = dict[str, Array]


def add_flags(parser: cli.Parser) -> None:
    add = parser.add_argument
    add("--repair", type=Path, metavar="FILE", help="find the edits of a pair's port that make it match, as a diff")
    add("--reproduce", type=Path, metavar="DIR", help="write the module that diverges first as a script for each side")


def check(parser: cli.Parser, args: argparse.Namespace) -> None:
    """Exit with status 2 if other flags contradict these. Raises UsageError for paths."""
    for flag in ("repair", "reproduce"):
        if getattr(args, flag) and (args.golden or args.traces or args.case or len(args.pair) + bool(args.torch) != 1):
            parser.error(f"--{flag} is for one pair: it needs one --pair=FILE.toml, or --torch, --keras and --input")
    if args.reproduce:
        cli.make_folder("--reproduce", args.reproduce)
    if args.repair:
        try:
            args.repair.write_bytes(b"")
        except OSError as error:
            raise UsageError(f"--repair={args.repair}: cannot be written: {error.strerror}") from None


def follow_up(args: argparse.Namespace, scratch: Path) -> FollowUp | None:
    """Return what is to be done with a pair that diverged; None if the flags ask for nothing."""
    if not args.repair and not args.reproduce:
        return None

    def follow(file: PairFile, result: CaseResult, sides: Sequence[Worker], folder: Path) -> None:
        if args.reproduce and result.verdict != "match":
            result.reproduced = reproduce(file, result, folder, args.reproduce, cli.pythons(args))
        if args.repair and result.verdict != "match":
            result.repair = Repairing(file, sides, scratch / "repair", args.vary).run(result, folder, args.repair)

    return follow


def reproduce(file: PairFile, result: CaseResult, folder: Path, target: Path, pythons: Mapping[str, str]) -> list[str]:
    """Write the scripts into `target`, run them, and return what is to be said of them.

    `folder` holds the traces of the pair's comparison; `pythons` the interpreter of each side, "" for this one.
    """
    first = result.first_divergence
    if first is None or first.kind != "activation" or first.step is None:
        place_ = f"{first.kind} {first.name}" if first else "nowhere"
        return [f"nothing to reproduce: the first divergence is at {place_}, not in what a module returns"]
    try:
        return list(_written(_Guilty(file, first, folder), target, pythons))
    except UsageError as error:
        return [f"{first.name} cannot be taken out of the model: {error}"]


def _written(guilty: "_Guilty", target: Path, pythons: Mapping[str, str]) -> Iterator[str]:
    """Write everything, and yield the output of each script."""
    np.savez(target / ARRAYS, **guilty.arrays())  # type: ignore[arg-type]
    for side in guilty.traces:
        path = target / f"{side}_module.py"
        path.write_text(guilty.script(side))
        command = [pythons.get(side) or sys.executable, path.name]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(command, cwd=target, env=environment, capture_output=True, text=True, timeout=LONGEST)
        said = ended.stdout if ended.returncode == 0 else (ended.stderr.strip().splitlines() or ["it failed"])[-1]
        yield from (f"{path}: {line}" for line in said.splitlines())


# In both, `inputs` is the number of tensors that the module is given, `leaf` says which of those that it returns is
# compared, and `axes` is the order of axes that makes the output of Keras's layer torch's.
TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("parity.repair"), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
)


class _Guilty:
    """The module at a divergence, its counterpart, what both were given and returned. Raises UsageError."""

    def __init__(self, file: PairFile, first: Divergence, folder: Path) -> None:
        assert first.step is not None
        if file.has_scripts:
            raise UsageError("a training script builds no module alone")
        self.file, self.pair, self.step = file, file.pair, first.step
        self.module, _, number = first.name.partition("#")
        self.leaf = int(number or 0)
        self.traces = {side: Trace(folder / side) for side in ("torch", "keras")}
        self.surveys = {side: survey.read(place(folder, side)) for side in self.traces}
        self.initial = TensorFile(place(folder, "torch") / survey.WEIGHTS)
        matching = self.traces["keras"].manifest.matching
        matches = [each for each in matching.matches if each.torch == first.name] if matching else []
        if not matches or self.module not in self.traces["torch"].manifest.modules:
            raise UsageError("no single layer of Keras's corresponds to it")
        self.match = matches[0]
        self.layer = self.match.keras.partition("#")[0]
        recorded, count = self._tensors("torch"), len(self.surveys["torch"].arguments.get(self.module, []))
        inputs = [recorded.get(keys.key("input", self.module, number)) for number in range(count)]
        if not inputs or any(each is None for each in inputs):
            raise UsageError("what it is given was not recorded, as it contains other modules")
        self.inputs = [each for each in inputs if each is not None]

    def _tensors(self, side: str) -> Mapping[str, Array]:
        return self.traces[side].open("high", keys.step_file(self.step))

    def arrays(self) -> Arrays:
        """Return all that the scripts read."""
        output = keys.key("activation", self.module, self.leaf)
        inputs = {f"input{number}": array for number, array in enumerate(self.inputs)}
        own = {f"keras_{name}": self._in_keras(number, array) for number, (name, array) in enumerate(inputs.items())}
        outputs = {f"output_{side}": np.asarray(self._tensors(side)[output]) for side in self.traces}
        weights = {f"torch/{name}": array for name, array in self._weights(self.module).items()}
        keras = {f"keras/{name}": array for name, array in self._keras_weights()}
        given = {name: array for name, array in own.items() if array is not None}
        return {name: np.array(array) for name, array in (inputs | given | outputs | weights | keras).items()}

    def _in_keras(self, number: int, array: Array) -> Array | None:
        """Return an input in the form in which Keras's layer gets it; None if the layer gets fewer."""
        shapes = self.surveys["keras"].arguments.get(self.layer, [])
        axes = self.match.inputs or (self.match.axes if len(self.match.axes) == array.ndim else None)
        if number >= len(shapes) or axes is None or len(axes) != len(shapes[number]):
            return array if number < max(len(shapes), 1) else None
        return array.reshape([shapes[number][axis] for axis in axes]).transpose(np.argsort(axes))

    def _weights(self, module: str) -> Arrays:
        """Return torch's weights below a module as they were before the step, by their names within it."""
        state = self.traces["torch"].open("high", keys.step_file(self.step - 1)) if self.step else {}
        tensors = {name: np.asarray(array) for name, array in self.initial.items()}
        for key, array in state.items():
            kind, name = keys.split(key)
            if kind in ("parameter", "buffer"):
                tensors[name] = array
        prefix = f"{module}." if module else ""
        below = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
        return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in below.items()}

    def _keras_weights(self) -> Iterator[tuple[str, Array]]:
        """Yield Keras's weights below the layer, made of torch's, by their names within it."""
        mapping, torch = self.traces["keras"].manifest.mapping, self._weights("")
        shapes = {weight.name: weight.shape for weight in self.surveys["keras"].weights}
        for entry in mapping.entries if mapping else ():
            if any(name.startswith(f"{self.layer}/") for name in entry.keras):
                own = [torch[name] for name in entry.torch]
                arrays = transfer.to_keras(entry, own, [shapes[name] for name in entry.keras])
                for name, array in zip(entry.keras, arrays, strict=True):
                    if name.startswith(f"{self.layer}/"):
                        yield name.removeprefix(f"{self.layer}/"), array

    def script(self, side: str) -> str:
        builder, count = getattr(self.pair, side), len(self.inputs)
        package, _, function = builder.partition(":")
        arguments: dict[str, Any] = self.pair.kwargs | getattr(self.pair, f"{side}_kwargs")
        module, _, leaf = getattr(self.match, side).partition("#")
        return TEMPLATES.get_template(f"{side}_module.py.j2").render(
            title=f"{module} of {builder}, alone",
            search=self.file.search,
            package=package,
            builder=f"{package}.{function}",
            arguments=", ".join(f"{name}={code(value)}" for name, value in arguments.items()),
            module=module,
            inputs=min(count, len(self.surveys[side].arguments.get(module, [])) or count),
            leaf=leaf or 0,
            training=self.pair.train is not None and self.step < self.file.case.steps,
            seed=self.file.case.seed,
            axes=self.match.axes,
        )
