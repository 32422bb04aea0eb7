"""Evidence as a side gives it, of a small model that learns, with nothing wrong in it; and findings of a rule."""

from typing import Any

from parity.doctor.evidence import Backward, Cut, Evidence, Gradient, Optimizer, Step
from parity.doctor.evidence.ops import Call, Copy, Failure, Module, Move, Place, Tensor, Weight
from parity.doctor.finding import Finding, Severity
from parity.trace.keys import MODEL

MODULES = {"encoder": "Linear", "decoder": "Linear"}
# Evidence, the id of its finding, its severity, where, the line, what the fix has; the evidence corrected.
Row = tuple[Evidence, str, str, str, str, str, Evidence]
NAMES = [f"{module}.{kind}" for module in MODULES for kind in ("weight", "bias")]


def devices(side: str, number: int = 1) -> list[str]:
    return [f"{'cuda' if side == 'torch' else 'GPU'}:{i}" for i in range(number)]


def host(side: str) -> str:
    return "cpu" if side == "torch" else "CPU:0"


def tensor(shape: list[int], device: str = "cuda:0", dtype: str = "float32", **fields: Any) -> Tensor:
    return Tensor(device=device, dtype=dtype, shape=shape, **fields)


def source(x: Tensor) -> Tensor:
    """The input src."""
    x.origin = "input src"
    return x


def weight(name: str, device: str = "cuda:0", kind: Any = "parameter", dtype: str = "float32", **fields: Any) -> Weight:
    shape = fields.pop("shape", [64, 64])
    made = fields.pop("made", "")
    owner = name.rpartition(".")[0] or MODEL
    return Weight(name=name, module=owner, kind=kind, tensor=tensor(shape, device, dtype, made=made), **fields)


def place(module: str = "", line: str = "train.py:5", phase: Any = "forward") -> Place:
    return Place(module=module, source=line, phase=phase)


def step(device: str = "cuda:0", **fields: Any) -> Step:
    """One that learns: the encoder, the decoder, a backward pass, an update."""
    x, hidden = source(tensor([8, 64], device)), tensor([8, 64], device, origin="output of encoder")
    out = tensor([8, 64], device, origin="output of decoder")
    calls = [
        Call(module=MODEL, source="train.py:5", inputs=[x], outputs=[out]),
        Call(module="encoder", source="model.py:10", inputs=[x], outputs=[hidden]),
        Call(module="decoder", source="model.py:11", inputs=[hidden], outputs=[out]),
    ]
    learns: dict[str, Any] = {
        "calls": calls,
        "backwards": [Backward(source="train.py:7", scaled=False, kept=[])],
        "gradients": gradients(),
        "optimizers": [Optimizer(kind="SGD", source="train.py:2", parameters=list(NAMES), stepped=True)],
    }
    return Step(**{**learns, **fields})


def gradients(**states: Any) -> list[Gradient]:
    """Of each parameter; those of a module are given by its name."""
    return [Gradient(parameter=name, state=states.get(name.partition(".")[0], "finite")) for name in NAMES]


def evidence(side: Any = "torch", gpus: int = 1, steps: list[Step] | None = None, **fields: Any) -> Evidence:
    """What a rank saw of it."""
    names = devices(side, gpus)
    sound: dict[str, Any] = {
        "devices": names,
        "own_step": True,
        "modules": modules(),
        "weights": [weight(name, names[0]) for name in NAMES],
        "steps": steps if steps is not None else [step(names[0]), step(names[0])],
    }
    return Evidence(side=side, **{**sound, **fields})


def modules(**fields: Any) -> list[Module]:
    """The model, its encoder and its decoder."""
    named = {MODEL: "Net", **MODULES}
    lines = dict(zip(named, ("build.py:3", "model.py:4", "model.py:5"), strict=True))
    return [Module(name=name, kind=kind, source=lines[name], **fields) for name, kind in named.items()]


def copied(what: Any, seen: Tensor, target: str, at: Place | None = None, **fields: Any) -> Copy:
    fields.setdefault("bytes", seen.bytes)
    return Copy(what=what, source=seen.device, target=target, tensor=seen, place=at or place(), **fields)


def failed(
    message: str, operation: str, *tensors: Tensor, at: Place | None = None, kind: str = "RuntimeError"
) -> Failure:
    return Failure(exception=kind, message=message, operation=operation, tensors=list(tensors), place=at or place())


def moved(device: str, line: str, whole: bool = False) -> Move:
    return Move(device=device, source=line, whole=whole)


def cut(what: str, seen: Tensor, line: str = "model.py:12", module: str = MODEL) -> Cut:
    return Cut(what=what, tensor=seen, place=place(module, line))


def finding(severity: Severity, name: str, line: str, message: str, fix: str, at: str = "", case: str = "") -> Finding:
    """What a rule says of PyTorch, at a module if one is named."""
    return Finding(id=name, severity=severity, where=at, source=line, message=message, fix=fix, side="torch", case=case)
