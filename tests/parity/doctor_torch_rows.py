"""Evidence of what is computed and not used in PyTorch programs, for the table of the rules."""

from typing import Any

from doctor_evidence import NAMES, Row, evidence, failed, modules, place, step, tensor

from parity.doctor.evidence import Backward, Carried, Cleared, Event, Evidence, Held, LossCall, Optimizer, Step, Still
from parity.doctor.evidence.ops import Call, Code, Race
from parity.trace.keys import MODEL

LINE = "t.py:8"
STATE = Carried(place=place("encoder", LINE), tensor=tensor([8, 64]))
USED_UP = failed("Trying to backward through the graph a second time", "backward")
CLEAR = Event(what="clear", source=LINE, statement="adam.zero_grad()")
ONE_VALUE = "Expected more than 1 value per channel when training, got input size torch.Size([1, 64])"


def seen(**fields: Any) -> Evidence:
    return evidence(steps=[step(), step(**fields)])


def clipped(**fields: Any) -> Evidence:
    """A clip of scaled gradients, and the update."""
    clip = Event(what="clip", source=LINE, statement="clip()", scaled=True, unscale="scaler.unscale_(adam)")
    return evidence(steps=[step(events=[clip, *fields.get("after", []), Event(what="update", source="t.py:12")])])


def unclipped() -> Evidence:
    return evidence(steps=[step(events=[Event(what=w, source=LINE) for w in ("unscale", "clip", "update")])])


def still(*schedules: Event, **fields: Any) -> Evidence:
    return evidence(steps=[step(events=list(schedules))], still=[Still(kind="Adam", source=LINE, **fields)])


def softmax(over_samples: Code | None) -> Evidence:
    call = LossCall(function="nll_loss", input=tensor([8, 4]), target=tensor([8]), place=place("", "t.py:9"))
    call.over_samples = over_samples
    return seen(losses=[call])


def adversaries(*feeds: list[str], failure: bool = False) -> Evidence:
    """A pass to update the decoder, and one to update the encoder, which makes the decoder's input."""
    both = [
        Optimizer(kind="Adam", source="t.py:2", parameters=[name for name in NAMES if part in name], stepped=True)
        for part in ("encoder", "decoder")
    ]
    call = Call(module="decoder", source=LINE, inputs=[tensor([8, 64], origin="output of encoder")])
    call.detached = Code(source=LINE, fix="decoder(x.detach())")
    critic = Backward(source="t.py:9", scaled=True, kept=[], feeds=list(feeds), updated=["1"])
    maker = Backward(
        source="t.py:11", scaled=True, kept=list(NAMES), feeds=[["1", "0"]], updated=[] if failure else ["0"]
    )
    fields: dict[str, Any] = {"optimizers": both, "backwards": [critic, maker], "calls": [call]}
    return evidence(steps=[step(**fields, failure=USED_UP if failure else None)])


def normalised(**fields: Any) -> Evidence:
    parts = modules()
    parts[1].facts = {"each_sample": "nn.GroupNorm(1, 64)"}
    return evidence(modules=parts, steps=[step(**fields)])


def kept(*steps: Step) -> Evidence:
    return evidence(steps=list(steps), kept=Held(place=place("encoder", LINE)))


NO_PASS: dict[str, Any] = {"backwards": [], "gradients": [], "optimizers": []}
TORCH_ROWS: list[Row] = [
    (seen(cleared=[Cleared(clear=CLEAR, update="t.py:10")]),
        *("learning.cleared_early", "error", "", LINE, "adam.zero_grad()  # moved after line 10"), evidence()),
    (clipped(), "learning.clipped_scaled", "error", "", LINE, "scaler.unscale_(adam)  # before this line", unclipped()),
    (clipped(after=[Event(what="unscale", source="t.py:10")]),
        *("learning.clipped_scaled", "error", "", LINE, "clip()  # moved after line 10"), unclipped()),
    (still(scheduler="warm"), *("learning.rate_zero", "error", "", LINE, "warm.step()  # after this line"),
        still(Event(what="schedule", source="t.py:9"), scheduler="warm")),
    (still(faster=Code(source="t.py:2", fix="Adam(lr=1e-3)")),
        *("learning.rate_zero", "error", "", "t.py:2", "Adam(lr=1e-3)"), evidence()),
    (softmax(Code(source=LINE, fix="y = x.softmax(1)")), *("loss.softmax_axis", "error", "", LINE, "y = x.softmax(1)"),
        softmax(None)),
    (softmax(Code()), "loss.softmax_axis", "error", "", "t.py:9", "softmax(logits, -1)", softmax(None)),
    (seen(carried=STATE, failure=USED_UP),
        *("autograd.state_kept", "error", "encoder", LINE, "state = state.detach()  # before this line"),
        seen(carried=STATE)),
    (seen(carried=STATE, held=Held(place=place("", "t.py:9"))),
        *("autograd.state_kept", "error", "encoder", LINE, "state.detach()"),
        seen(held=Held(place=place("", "t.py:9")))),
    (seen(races=[Race(tensor=tensor([8, 4]), read="t.py:9", place=place("", LINE))]),
        *("sync.race", "error", "", LINE, "torch.cuda.synchronize()  # after this line"), evidence()),
    (normalised(failure=failed(ONE_VALUE, "batch_norm", at=place("encoder"))),
        *("shape.batch_of_one", "error", "encoder", "model.py:4", "nn.GroupNorm(1, 64)"), normalised()),
    (adversaries(["1", "0"]), *("learning.undetached", "error", "", LINE, "decoder(x.detach())"), adversaries()),
    (adversaries(["1", "0"], failure=True), *("learning.undetached", "error", "", LINE, "decoder(x.detach())"),
        adversaries(["0", "1"], ["1", "0"])),
    (kept(step(), step()), *("memory.graph_kept", "warning", "encoder", LINE, "bank.append(features.detach())"),
        kept(step(), step(**NO_PASS))),
]  # fmt: skip


def on_one(*visible: str) -> list[Evidence]:
    """Two ranks on the same of two GPUs, as they call it."""
    given = enumerate(visible)
    return [evidence(gpus=2, rank=rank, ranks=2, visible=names) for rank, names in given]


SHARED = ("placement.shared_gpu", "error", MODEL, "build.py:3", "torch.cuda.set_device(")
