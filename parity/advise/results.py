"""What the advice says, as the structs of its JSON."""

import msgspec

Seconds = float
Bytes = float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a strategy, and how far the prediction is from it, as a part of what was measured.

    `seconds`: of a step; `peak`: bytes of the process or GPU with the most.
    """

    seconds: float
    peak: float
    seconds_error: float
    peak_error: float


class Balanced(msgspec.Struct, frozen=True, kw_only=True):
    """A more even cut into stages: how many blocks each has, the step's seconds, and the fields of such a case."""

    stage_blocks: list[int]
    step: float
    fields: dict[str, str]


class Choice(msgspec.Struct, kw_only=True):
    """What a strategy costs in one framework.

    `memory`: the bytes of the device that needs the most, by their parts; `devices`: the bytes of each device. `peak`:
    on this machine, the bytes of the process with the most. `sent`: the bytes of a step's copies and collectives.
    `seconds`: the parts of a step's time. `balanced`: a cut into stages by which a step is shorter, if there is one.
    `why_not`: why there is no such training, or "".
    """

    side: str
    strategy: str
    why_not: str = ""
    micro_batches: int = 1
    fits: bool = False
    memory: dict[str, float] = {}
    devices: list[float] = []
    peak: float | None = None
    sent: dict[str, int] = {}
    seconds: dict[str, float] = {}
    step: float | None = None
    speed_up: float | None = None
    balanced: Balanced | None = None
    measured: Measured | None = None


class Advice(msgspec.Struct, kw_only=True):
    """The advice for one case or pair.

    `memory`: the bytes that each device has. `best`: for each framework the fastest strategy that fits. `scaling`: the
    fastest strategy of each framework on other numbers of devices, with its speed-up.
    """

    case: str
    batch: int | None
    devices: str
    link: str
    memory: float
    choices: list[Choice] = []
    best: dict[str, str] = {}
    assumed: list[str] = []
    would_change: list[str] = []
    scaling: dict[str, list[tuple[int, str, float]]] = {}


class Document(msgspec.Struct, kw_only=True):
    """The JSON document; `error`: why it is not complete, or ""."""

    schema: int = 1
    advice: list[Advice] = []
    error: str = ""
