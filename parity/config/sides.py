"""The schema of the sides in a pair's file: ways to run a model of one framework that must be the same computation.

A side is the plain run of its framework with some switches. The structs are frozen and refuse unknown switches; a
switch that a framework does not have is no field of its struct.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from parity.config.base import Frozen, Positive
from parity.config.schema import Case, Pair
from parity.core.errors import UsageError, nearest
from parity.core.script import is_script

NAME = re.compile(r"\w[\w.-]*")  # a folder of traces is named by the side
SINGLE: Literal["single"] = "single"
SHARDED, COMPILED = ("fsdp",), ("compile", "graph", "xla")  # strategies and switches
KEPT = ("python", "env")  # where a side runs: they change no step of the training


class Switches(Frozen, frozen=True, omit_defaults=True):
    """What a side does otherwise than the plain run of its framework.

    Attributes:
        name: the side's name in the pair's file.
        accumulate: cut each batch into so many micro-batches, and update once for all of them.
        checkpointing: a glob of modules that torch.utils.checkpoint, or keras.remat, runs again in the backward pass.
        step: "module:function" that runs a training step in the place of the pair's own.
        script: a training script that is run in the place of the pair's, such as the same one after a change.
        env: further environment variables of the side's process.
        python: the interpreter that runs the side; "" for that of its framework.
        strategy: how several devices train together.
        devices: the number of these devices.
    """

    name: str = ""
    accumulate: Positive = 1
    checkpointing: str = ""
    step: str = ""
    script: str = ""
    env: dict[str, str] = {}
    python: str = ""
    strategy: str = SINGLE
    devices: Positive = 1

    def __post_init__(self) -> None:
        if ("strategy" in self.changes) != (self.devices > 1):
            raise ValueError(
                f"strategy and devices, of 2 or more, belong together; received strategy = {self.strategy!r}, "
                f"devices = {self.devices}"
            )
        if self.accumulate > 1 and self.step:
            raise ValueError("accumulate and step exclude each other: a step of your own cuts its batch by itself")

    @property
    def framework(self) -> str:
        """Return the side's framework, "torch" or "keras"."""
        return str(type(self).__struct_config__.tag)

    @property
    def changes(self) -> dict[str, Any]:
        """Return the switches that differ from the plain run, by name."""
        return {key: value for key, value in msgspec.to_builtins(self).items() if key not in ("name", "framework")}

    @property
    def ranks(self) -> int:
        """Return the number of processes that train together."""
        return self.devices if self.framework == "torch" else 1

    @property
    def is_compiled(self) -> bool:
        """Return whether a compiler sees the model, in which hooks would change what is compiled."""
        return not self.changes.keys().isdisjoint(COMPILED)

    @property
    def is_sharded(self) -> bool:
        """Return whether each device holds a part of every parameter."""
        return self.strategy in SHARDED

    @property
    def parts(self) -> int:
        """Return the number of parts into which each batch of a training is cut."""
        return self.accumulate * self.devices

    def trained(self, case: Case) -> Case:
        """Return a pair's case with the side's own training step, or script, in the place of the pair's.

        Raises UsageError if the side cannot train so.
        """
        pair, own = case.model, self.framework
        assert isinstance(pair, Pair)
        if self.script:
            assert pair.train
            has_step = own == "torch" or pair.train.keras_step  # none where a script calls `fit`
            flags = {f"{own}_step": self.script if has_step else "", f"{own}_optimizer": self.script}
            return replace(case, model=replace(pair, **{own: self.script, "train": replace(pair.train, **flags)}))
        if not (self.step and pair.train):
            return case
        return replace(case, model=replace(pair, train=replace(pair.train, **{f"{own}_step": self.step})))

    @property
    def needs_training(self) -> list[str]:
        """Return those of the side's switches that only a training shows."""
        return [key for key in self.changes if key in ("accumulate", "step", "strategy")]


class TorchSide(Switches, frozen=True, omit_defaults=True, tag_field="framework", tag="torch"):
    """A side in PyTorch.

    Attributes:
        compile: compile the model by torch.compile; true takes inductor, or aot_eager without a C++ compiler.
        strategy: what trains in `devices` processes: "ddp" is torch.nn.parallel.DistributedDataParallel, "fsdp" is
            torch.distributed.fsdp.fully_shard of the model, and of each item of its nn.ModuleLists.
    """

    compile: bool | Literal["inductor", "aot_eager", "eager"] = False
    strategy: Literal["single", "ddp", "fsdp"] = SINGLE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile and (self.checkpointing or self.ranks > 1):
            excluded = "checkpointing" if self.checkpointing else f"strategy = {self.strategy!r}"
            raise ValueError(f"compile and {excluded} exclude each other; give each a side of its own")


class KerasSide(Switches, frozen=True, omit_defaults=True, tag_field="framework", tag="keras"):
    """A side in Keras.

    Attributes:
        graph: trace each step, and each other call of the model, to a graph by tf.function, as `fit` does.
        xla: compile these graphs by XLA (jit_compile=True).
        strategy: "mirrored" trains replicas on `devices` devices with tf.distribute.MirroredStrategy.
    """

    graph: bool = False
    xla: bool = False
    strategy: Literal["single", "mirrored"] = SINGLE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.graph and self.xla:
            raise ValueError("graph and xla exclude each other: XLA compiles a graph")
        others = [key for key in ("accumulate", "checkpointing", "step", "strategy") if key in self.changes]
        if self.is_compiled and others:
            compiled = "xla" if self.xla else "graph"
            raise ValueError(f"{compiled} and {others[0]} exclude each other; give each a side of its own")

    def trained(self, case: Case) -> Case:
        pair = case.model
        apart = [key for key in ("graph", "xla", "strategy") if key in self.changes]
        if apart and isinstance(pair, Pair) and pair.train and is_script(pair.train.keras_step):
            raise UsageError(
                f"{apart[0]}: {pair.train.keras_step} trains in a loop of its own, which is run op by op on one "
                "device; expected a script that calls fit, or a builder and a keras_step"
            )
        return super().trained(case)


Side = TorchSide | KerasSide
KINDS: dict[str, type[TorchSide] | type[KerasSide]] = {"torch": TorchSide, "keras": KerasSide}
PLAIN = {name: kind(name=name) for name, kind in KINDS.items()}  # what needs no table in a pair's file


def outermost(pattern: str, paths: Iterable[str], separator: str) -> list[str]:
    """Return the modules that `checkpointing` names, without those within another one of them.

    Raises UsageError if there are none.
    """
    known = list(paths)
    chosen = [path for path in known if fnmatch.fnmatchcase(path, pattern)]
    if not chosen:
        raise UsageError(
            f"checkpointing = {pattern!r}: the model has no such module{nearest(pattern, known)}; expected a glob of "
            f"its modules, such as {', '.join(known[:4])}"
        )
    return [path for path in chosen if not any(path.startswith(outer + separator) for outer in chosen)]


def unknown(name: str, table: Mapping[str, Any]) -> str:
    """Return what is wrong with the keys of a table [sides.NAME], in words; "" if nothing is."""
    framework = table.get("framework", "torch")
    if not NAME.fullmatch(name):
        return f"a side is named by letters, digits, _, - and dots, received {name!r}"
    if framework not in KINDS:
        return f'framework is {framework!r}, expected "torch" (the default) or "keras"'
    known = {side: [field for field in kind.__struct_fields__ if field != "name"] for side, kind in KINDS.items()}
    if not (wrong := [key for key in table if key not in ("framework", *known[framework])]):
        return ""
    key = wrong[0]
    switches = f'those of framework = "{framework}" are {", ".join(known[framework])}'
    owner = next((side for side, names in known.items() if key in names), "")
    what = f'a switch of framework = "{owner}"' if owner else f"no switch{nearest(key, known[framework])}"
    return f"{key if owner else repr(key)} is {what}; {switches}"
