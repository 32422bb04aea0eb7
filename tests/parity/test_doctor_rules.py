"""Each rule on evidence that has its fault, and on the corrected one, in which nothing is found."""

from typing import Any

import msgspec
import pytest
from doctor_evidence import (
    NAMES,
    copied,
    cut,
    evidence,
    failed,
    gradients,
    host,
    modules,
    moved,
    place,
    source,
    step,
    tensor,
    weight,
)
from doctor_training_rows import ROWS

from parity.core.names import MODEL
from parity.doctor import rules
from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.functions import Eager, Retrace
from parity.doctor.evidence.model import Module
from parity.doctor.evidence.ops import Broadcast, Call, Failure, InPlace, NotFinite, Soft
from parity.doctor.evidence.ranks import Collective
from parity.doctor.evidence.training import Backward, LossCall, Optimizer
from parity.doctor.rules import words

KIB = 256  # float32 numbers
SPLIT = [weight("encoder.weight"), weight("decoder.weight", "cuda:1")]
KERAS_SPLIT = [weight("encoder.weight", "GPU:0"), weight("decoder.weight", "GPU:1")]
SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


def ids(dtype: str = "int64", made: str = "", device: str = "cuda:0") -> Any:
    return tensor([2, 8], device, dtype, origin="input ids", made=made)


def embeds(**fields: Any) -> list[Module]:
    return [*modules(), Module(name="table", kind="Embedding", source="model.py:3", facts={"rows": 100}, **fields)]


def one_device(second: str) -> Evidence:
    """Layers placed one by one."""
    weights = [weight(name, "cuda:0" if "encoder" in name else second) for name in NAMES]
    return evidence(gpus=2, weights=weights, moves=[moved("cuda:0", "model.py:4"), moved(second, "model.py:5")])


def lopsided(first: int) -> Evidence:
    """Ten layers, the first so many on the first device."""
    weights = [weight(f"{i}.weight", f"cuda:{int(i >= first)}") for i in range(10)]
    return evidence(gpus=2, weights=weights, moves=[moved("cuda:0", "model.py:4"), moved("cuda:1", "model.py:5")])


def stray(kind: Any, device: str) -> Evidence:
    weights = [weight("encoder.weight"), weight("encoder.scale", device, kind, made="model.py:8"), *SPLIT[:1]]
    return evidence(weights=weights)


def slots(device: str) -> Evidence:
    counter = weight("encoder.weight", "cpu", "optimizer_state", shape=[])
    weights = [weight("encoder.weight"), counter, weight("encoder.weight", device, "optimizer_state")]
    return evidence(weights=weights, moves=[moved("cuda:0", "build.py:9", whole=True)])


def hidden(registered: bool) -> Evidence:
    made = [Module(name=f"blocks[{i}]", kind="Linear", source="model.py:7", registered=registered) for i in range(3)]
    return evidence(modules=[*modules(), *made])


def mismatch(*tensors: Any, ends: bool = True, at: str = "decoder", **fields: Any) -> Evidence:
    broken = failed(SAME_DEVICE, "linear", *tensors, at=place(at, "model.py:11"))
    return evidence(gpus=2, steps=[step(failure=broken if ends else None)], **fields)


def cpu_batch(device: str) -> Evidence:
    x, kernel = source(tensor([8, 64], device)), tensor([64, 64], origin="parameter encoder.weight")
    call = Call(module=MODEL, source="train.py:5", inputs=[x])
    broken = failed(SAME_DEVICE, "linear", x, kernel, at=place("encoder", "model.py:10")) if device == "cpu" else None
    return evidence(steps=[Step(calls=[call], failure=broken)])


def copies(*found: Any, side: Any = "torch", gpus: int = 1, **fields: Any) -> Evidence:
    return evidence(side, gpus, [step(f"{'cuda' if side == 'torch' else 'GPU'}:0", copies=list(found))] * 2, **fields)


def again(number: int, side: Any = "torch") -> Evidence:
    target = "cuda:0" if side == "torch" else "GPU:0"
    src = source(tensor([8, 64], host(side)))
    return copies(copied("to", src, target, place("encoder", "model.py:9"), count=number + 1, again=number), side=side)


def sent(origin: str = "constant", side: Any = "torch", what: Any = "to", **fields: Any) -> Evidence:
    target = "cuda:0" if side == "torch" else "GPU:0"
    return copies(copied(what, tensor([8, 8], host(side), origin=origin), target, **fields), side=side)


def batch(rows: int, **fields: Any) -> Evidence:
    return copies(copied("to", source(tensor([rows, KIB], "cpu")), "cuda:0", place("", "train.py:4"), **fields))


def between(phase: Any, origin: str = "output of encoder", module: str = "decoder", side: Any = "keras") -> Evidence:
    found = copied("implicit", tensor([8, 64], "GPU:1", origin=origin), "GPU:0", place(module, "model.py:11", phase))
    return copies(found, side=side, gpus=2, weights=KERAS_SPLIT)


def parameter_copied(origin: str) -> Evidence:
    found = copied("to", tensor([64, 64], origin=origin), "cuda:1", place("decoder", "model.py:11"))
    return copies(found, gpus=2, weights=SPLIT)


def waits(what: Any, device: str = "cuda:0", **fields: Any) -> Evidence:
    found = copied(what, tensor([], device, origin="loss"), "cpu", place("", "train.py:9", "other"), seconds=0.3)
    return copies(found, **fields)


def printed_once() -> Evidence:
    first = step(copies=waits("print").steps[0].copies)
    return evidence(steps=[first, step()])


def doubles(weights: list[str], given: str, made: str = "train.py:3") -> Evidence:
    x = source(tensor([8, 64], dtype=given, made=made if given == "float64" else ""))
    calls = [Call(module=MODEL, source="train.py:5", inputs=[x], outputs=[tensor([8, 64])])]
    held = [weight(name, dtype=dtype, made="build.py:4") for name, dtype in zip(NAMES[::2], weights, strict=True)]
    return evidence(steps=[step(calls=calls)], weights=held)


def mixed(dtype: str) -> Evidence:
    return evidence(weights=[weight("encoder.weight", dtype=dtype, made="model.py:6"), weight("decoder.weight")])


def looked_up(dtype: str, ends: bool) -> Evidence:
    """In Keras floats are rounded; PyTorch refuses them."""
    given = ids(dtype, "train.py:3" if dtype != "int64" else "")
    call = Call(module="table", source="model.py:9", inputs=[given], outputs=[] if ends else [tensor([2, 8, 4])])
    broken = failed(
        "tensor 'indices' to be Long", "embedding", given, tensor([100, 4]), at=place("table", "model.py:9")
    )
    found = step(calls=[call], failure=broken if ends else None)
    return evidence("torch" if ends else "keras", steps=[found], modules=embeds())


def beyond(side: Any = "torch", message: str = "index out of range in self", kind: str = "IndexError") -> Evidence:
    broken = failed(message, "embedding", ids(), tensor([100, 4]), at=place("table", "model.py:9"), kind=kind)
    return evidence(side, steps=[step(failure=broken)], modules=embeds())


def types(dtype: str, message: str = "mat1 and mat2 must have the same dtype") -> Evidence:
    given = [tensor([8, 64], dtype=dtype, origin="input src"), tensor([64, 64], origin="parameter encoder.weight")]
    broken = failed(message, "addmm", *given, at=place("encoder", "model.py:10"))
    return evidence(steps=[step(failure=broken if dtype != "float32" else None)])


def learns(side: Any = "torch", cuts: Any = (), distributed: str = "", **states: Any) -> Evidence:
    name = "cuda:0" if side == "torch" else "GPU:0"
    found = step(name, gradients=gradients(**states), cuts=list(cuts), distributed=distributed)
    return evidence(side, steps=[found, found])


def not_called() -> Evidence:
    found = learns(encoder="none")
    for each in found.steps:
        each.calls = [call for call in each.calls if call.module != "encoder"]
    return found


def one_parameter() -> Evidence:
    found = learns()
    for each in found.steps:
        each.gradients[0].state = "none"
    return found


def sends(*backwards: Backward) -> Evidence:
    sent_on = cut("send", tensor([8, 64], origin="output of (model)"), "train.py:6", module="")
    found = step(cuts=[sent_on], backwards=list(backwards), gradients=[])
    return evidence(steps=[found], ranks=2)


def optimizer(number: int, **fields: Any) -> Evidence:
    held = Optimizer(kind="SGD", source="train.py:2", parameters=NAMES[:number], stepped=True)
    return evidence(steps=[step(optimizers=[held])] * 2, **fields)


def frozen(trained: bool) -> Evidence:
    return evidence(weights=[weight(name, trained=trained or "decoder" in name) for name in NAMES])


def kept(*names: str) -> Evidence:
    return evidence(steps=[step(), step(backwards=[Backward(source="train.py:7", scaled=False, kept=list(names))])])


def accumulated(scaled: bool, side: Any = "torch", line: str = "train.py:7") -> Evidence:
    held = NAMES if side == "torch" else []
    passes = [Backward(source="train.py:7", scaled=scaled, kept=[]), Backward(source=line, scaled=scaled, kept=held)]
    return evidence(side, steps=[step(backwards=passes)])


def mode(
    kind: str = "Dropout", side: Any = "torch", training: bool = False, part: bool = False, **fields: Any
) -> Evidence:
    made = modules(training=training or part)
    made.append(Module(name="drop", kind=kind, source="model.py:6", training=training))
    return evidence(side, modules=made, **fields)


def validated(training: bool, side: Any = "torch") -> Evidence:
    ended = cut("no_grad", tensor([64, 64], origin="parameter encoder.weight"), "train.py:5", "")
    found = step(backwards=[], gradients=[], optimizers=[], cuts=[ended] if side == "torch" else [])
    return mode(side=side, training=training, steps=[found])


def sequence(output: list[int], batch_first: bool = False, broadcasts: Any = ()) -> Evidence:
    x = tensor([4, 9, 16], origin="output of table")
    calls = [
        Call(module=MODEL, source="train.py:5", inputs=[source(tensor([4, 9]))], outputs=[tensor(output)]),
        Call(module="encoder", source="model.py:10", inputs=[x], outputs=[tensor([4, 9, 16])]),
    ]
    made = [Module(name="encoder", kind="TransformerEncoder", source="model.py:4", facts={"batch_first": batch_first})]
    return evidence(modules=made, steps=[step(calls=calls, broadcasts=list(broadcasts))])


def positions(shape: list[int]) -> Broadcast:
    left, right = tensor([4, 9, 16]), tensor(shape, origin="parameter positions")
    return Broadcast(operation="add", left=left, right=right, place=place(MODEL, "model.py:9"))


def loss(function: str, left: list[int], right: list[int], side: Any = "torch", **fields: Any) -> Evidence:
    call = LossCall(
        function=function, input=tensor(left), target=tensor(right), place=place("", "train.py:6", "loss"), **fields
    )
    return evidence(side, steps=[step(losses=[call])])


def by_hand(left: list[int], right: list[int], phase: Any = "loss", module: str = "", side: Any = "keras") -> Evidence:
    wide = Broadcast(operation="sub", left=tensor(left), right=tensor(right), place=place(module, "train.py:6", phase))
    return evidence(side, steps=[step(broadcasts=[wide])])


def not_finite(operation: str, phase: Any = "forward", became: Any = "nan", side: Any = "torch") -> Evidence:
    bad = NotFinite(
        operation=operation, became=became, smallest=-1.5, largest=2.0, place=place("encoder", "model.py:10", phase)
    )
    return evidence(side, steps=[step(not_finite=bad)])


def in_place(ends: bool) -> Evidence:
    said = "modified by an inplace operation: [torch.FloatTensor [4, 8]], which is output 0 of ReluBackward0, is at"
    changes = [
        InPlace(operation="mul_", made_by="add", shape=[4, 8], place=place("decoder", "model.py:20")),
        InPlace(operation="add_", made_by="relu", shape=[4, 8], place=place("encoder", "model.py:12")),
        InPlace(operation="add_", made_by="relu", shape=[4, 9], place=place("decoder", "model.py:22")),
    ]
    broken = failed(f"one of the variables has been {said} version 1", "", at=place("", "train.py:7", "backward"))
    return evidence(steps=[step(in_places=changes, failure=broken if ends else None)])


def raised(ends: bool) -> Evidence:
    broken = failed(
        "mat1 and mat2 shapes cannot be multiplied (2x144 and 256x3)\nmore", "addmm", at=place("out", "m.py:3")
    )
    return evidence(steps=[step(failure=broken if ends else None)])


def softly(**fields: Any) -> Evidence:
    op = Soft(asked="GPU:4", ran="GPU:0", operation="MatMul", place=place("encoder", "model.py:10"), count=2)
    return evidence("keras", steps=[step("GPU:0", **({"soft": [op]} | fields))])


HALF = {"half": "model.py:10"}
DETACHED = cut("detach", tensor([8, 64], origin="output of encoder"))
LOGGED = cut("detach", tensor([], origin="loss"), "train.py:8", "")

# Evidence, the id, its severity, where, the line, what the fix has; the evidence corrected.
TABLE: list[tuple[Evidence, str, str, str, str, str, Evidence]] = [
    (one_device("cuda:0"), "placement.one_device", "warning", MODEL, "model.py:4", "i % 2", one_device("cuda:1")),
    (lopsided(9), "placement.lopsided", "warning", MODEL, "model.py:4", '.to("cuda:1")', lopsided(5)),
    (
        stray("parameter", "cpu"),
        *("placement.parameter", "error", "encoder", "model.py:8", 'nn.Parameter(model.encoder.scale.to("cuda:0"))'),
        stray("parameter", "cuda:0"),
    ),
    (
        stray("buffer", "cpu"),
        *("placement.buffer", "error", "encoder", "model.py:8", 'model.encoder.scale.to("cuda:0")'),
        stray("buffer", "cuda:0"),
    ),
    (
        slots("cpu"),
        *("placement.optimizer_state", "error", "encoder", "build.py:9", "torch.optim.SGD(model.parameters())"),
        slots("cuda:0"),
    ),
    (hidden(False), "placement.hidden", "error", "blocks[0]", "model.py:7", "nn.ModuleList(blocks)", hidden(True)),
    (
        mismatch(tensor([8, 64], origin="output of encoder"), tensor([64, 64], "cuda:1"), weights=SPLIT),
        *("placement.activation", "error", "decoder", "model.py:11", 'x = x.to("cuda:1")'),
        mismatch(weights=SPLIT, ends=False),
    ),
    (
        evidence(gpus=3, weights=SPLIT),
        *("placement.unused", "note", "", "build.py:3", "i % 3"),
        evidence(gpus=2, weights=SPLIT),
    ),
    (softly(), "placement.soft", "warning", "encoder", "model.py:10", 'tf.device("GPU:0")', softly(soft=[])),
    (
        between("backward"),
        *("placement.backward", "warning", "decoder", "model.py:11", 'tf.device("GPU:1")'),
        between("update"),
    ),
    (
        between("forward"),
        *("copy.implicit", "warning", "decoder", "model.py:11", 'with tf.device("GPU:1"): x = model.decoder(x)'),
        between("forward", "parameter decoder.weight", module=""),
    ),
    (cpu_batch("cpu"), "input.device", "error", "encoder", "train.py:5", 'src = src.to("cuda:0")', cpu_batch("cuda:0")),
    (again(2), "input.copied_again", "warning", "encoder", "model.py:9", 'src = src.to("cuda:0")', again(0)),
    (
        again(2, "keras"),
        *("input.copied_again", "warning", "encoder", "model.py:9", 'with tf.device("GPU:0"): src = tf.identity(src)'),
        again(0, "keras"),
    ),
    (
        batch(64, contiguous=False),
        *("input.not_contiguous", "warning", "", "train.py:4", "src.contiguous()"),
        batch(63, contiguous=False),
    ),
    (batch(1024, pinned=False), "input.not_pinned", "note", "", "train.py:4", "pin_memory", batch(1023, pinned=False)),
    (sent(), "copy.constant", "warning", "", "train.py:5", "register_buffer", sent("input src")),
    (
        sent(side="keras", what="constant"),
        "copy.constant",
        "warning",
        "",
        "train.py:5",
        "tf.constant",
        sent("output of x"),
    ),
    (sent("", again=1), "copy.constant", "warning", "", "train.py:5", "register_buffer", sent("")),
    (
        parameter_copied("parameter encoder.weight"),
        *("copy.parameter", "warning", "decoder", "model.py:11", 'model.encoder.to("cuda:1")'),
        parameter_copied("output of encoder"),
    ),
    (waits("cpu"), "sync.cpu", "warning", "", "train.py:9", "loss.detach()", waits("cpu", "cpu")),
    (waits("item"), "sync.item", "warning", "", "train.py:9", "loss.detach()", waits("item", "cpu")),
    (waits("numpy"), "sync.numpy", "warning", "", "train.py:9", "loss.detach()", waits("numpy", "cpu")),
    (waits("print"), "sync.print", "warning", "", "train.py:9", "if step % 100 == 0", printed_once()),
    (waits("bool"), "sync.bool", "warning", "", "train.py:9", "torch.where(", waits("bool", "cpu")),
    (waits("boolean_index"), "sync.boolean_index", "warning", "", "train.py:9", "torch.where(", waits("bool", "cpu")),
    (
        evidence("keras", retraces=[Retrace(function="train", source="t.py:8", count=3, change="rate: 1.0 -> 0.5")]),
        *("function.retraced", "warning", "", "t.py:8", "rate = tf.constant(rate)"),
        evidence("keras"),
    ),
    (
        evidence("keras", eager=[Eager(what="py_function", place=place("", "t.py:8"))]),
        *("function.eager", "warning", "", "t.py:8", "tf.py_function"),
        evidence("keras"),
    ),
    (
        doubles(["float64", "float32"], "float32"),
        *("type.float64_parameter", "warning", "encoder", "build.py:4", "model.encoder.float()"),
        doubles(["float64", "float64"], "float64"),
    ),
    (
        doubles(["float32", "float32"], "float64"),
        *("type.float64_input", "warning", "", "train.py:3", "src = src.float()"),
        doubles(["float32", "float32"], "float32"),
    ),
    (
        looked_up("float64", ends=False),
        *("type.float_ids", "warning", "table", "train.py:3", "tf.int32"),
        looked_up("int64", ends=False),
    ),
    (
        looked_up("float32", ends=True),
        *("type.float_ids", "error", "table", "train.py:3", "ids = ids.long()"),
        looked_up("int64", ends=False),
    ),
    (beyond(), "type.ids_range", "error", "table", "model.py:9", "largest_id + 1", evidence(modules=embeds())),
    (
        beyond("keras", "indices[0,3] = 105 is not in [0, 100)", "InvalidArgumentError"),
        *("type.ids_range", "error", "table", "model.py:9", "keras.layers.Embedding(106"),
        evidence("keras", modules=embeds()),
    ),
    (types("uint8"), "type.integer_input", "error", "encoder", "model.py:10", "src = src.float()", types("float32")),
    (mixed("bfloat16"), "type.mixed_parameters", "warning", MODEL, "model.py:6", "torch.float32", mixed("float32")),
    (
        evidence(steps=[step(**HALF)]),
        *("type.loss_scaling", "warning", "", "model.py:10", "scaler.scale(loss).backward()"),
        evidence(steps=[step(**HALF, loss_scaled=True)]),
    ),
    (
        learns(encoder="none", cuts=[LOGGED, DETACHED]),
        *("learning.no_gradient", "error", "encoder", "model.py:12", "# torch's own functions, without .detach()"),
        learns(cuts=[LOGGED, DETACHED]),
    ),
    (not_called(), "learning.no_gradient", "error", "encoder", "model.py:4", "model.encoder(x)", learns()),
    (one_parameter(), "learning.no_gradient", "warning", "encoder", "model.py:10", "model.encoder(x)", learns()),
    (
        learns(encoder="none", distributed="ddp"),
        *("learning.unused_ddp", "error", "encoder", "model.py:4", "find_unused_parameters=True"),
        learns(distributed="ddp"),
    ),
    (
        sends(),
        *("learning.send_without_backward", "error", "", "train.py:6", "output.backward(gradient)"),
        sends(Backward(source="train.py:7", scaled=False, kept=[])),
    ),
    (
        optimizer(2),
        *("learning.no_optimizer", "error", "decoder", "train.py:2", "model.decoder.parameters()"),
        optimizer(4),
    ),
    (learns(encoder="zero"), "learning.zero_gradient", "warning", "encoder", "model.py:4", "nn.LeakyReLU()", learns()),
    (frozen(False), "learning.frozen", "note", "encoder", "model.py:4", "requires_grad_(True)", frozen(True)),
    (kept("encoder.weight"), "learning.not_cleared", "error", "", "train.py:7", "optimizer.zero_grad()", kept()),
    (
        accumulated(scaled=False),
        *("learning.not_normalised", "warning", "", "train.py:7", "(loss / 2).backward()"),
        accumulated(scaled=True),
    ),
    (
        accumulated(scaled=False, side="keras"),
        *("learning.not_normalised", "warning", "", "train.py:7", "loss = loss / 2"),
        accumulated(scaled=False, side="keras", line="train.py:8"),
    ),
    (mode(), "mode.eval", "warning", MODEL, "train.py:5", "model.train()", mode(training=True)),
    (mode("ReLU"), "mode.eval", "note", MODEL, "train.py:5", "model.train()", mode("ReLU", side="keras")),
    (mode(part=True), "mode.eval", "note", "drop", "model.py:6", "model.drop.train()", mode("ReLU", part=True)),
    (validated(True), "mode.train", "warning", MODEL, "train.py:5", "model.eval()", validated(False)),
    (
        validated(True, "keras"),
        "mode.train",
        "warning",
        MODEL,
        "train.py:5",
        "training=False",
        validated(False, "keras"),
    ),
    (
        sequence([4, 3]),
        *(
            "shape.sequence_first",
            "warning",
            "encoder",
            "model.py:10",
            "nn.TransformerEncoderLayer(..., batch_first=True)",
        ),
        sequence([4, 9, 3]),
    ),
    (
        sequence([9, 3], broadcasts=[positions([9, 16])]),
        *("shape.sequence_first", "warning", "encoder", "model.py:10", "batch_first=True"),
        sequence([4, 3], batch_first=True),
    ),
    (
        loss("mse_loss", [8, 1], [8]),
        *("shape.loss_broadcast", "error", "", "train.py:6", "output = output.squeeze(-1)"),
        loss("mse_loss", [8], [8]),
    ),
    (
        by_hand([8], [8, 1]),
        *("shape.loss_broadcast", "error", "", "train.py:6", "target = tf.squeeze(target, -1)"),
        by_hand([8], [8, 1], "forward", "encoder"),
    ),
    (
        loss("cross_entropy", [2, 6, 6], [2, 6], straight=True),
        *("shape.class_axis", "warning", "", "train.py:6", "transpose(1, -1)"),
        loss("cross_entropy", [2, 6, 6], [2, 6]),
    ),
    (not_finite("log"), "finite.forward", "error", "encoder", "model.py:10", "clamp(min=1e-6).log()", learns()),
    (
        not_finite("SqrtGrad", "backward", "inf", "keras"),
        "finite.backward",
        "error",
        "encoder",
        "model.py:10",
        "tf.sqrt",
        learns(),
    ),
    (learns(encoder="not_finite"), "finite.backward", "error", "encoder", "model.py:4", "clip_grad_norm_", learns()),
    (in_place(True), "autograd.in_place", "error", "encoder", "model.py:12", "out = out + x", in_place(False)),
    (raised(True), "step.raised", "error", "out", "m.py:3", "", raised(False)),
]

TABLE += ROWS


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[1]}-{number}" for number, row in enumerate(TABLE)])
def test_a_fault_gives_its_finding_and_its_correction_none(row: tuple) -> None:
    seen, name, severity, where, line, fix, corrected = row
    (finding,) = rules.findings([seen])
    assert (finding.id, finding.severity, finding.where, finding.source) == (name, severity, where, line)
    assert fix in finding.fix and "\n" not in finding.fix
    assert finding.message.endswith(".") or name == "step.raised"
    assert finding.side == seen.side
    assert [found for found in rules.findings([corrected]) if found.id == name] == []


def test_sound_evidence_has_no_findings() -> None:
    assert rules.findings([evidence(), evidence("keras")]) == []


def test_every_id_is_known_and_every_known_one_is_tested() -> None:
    told = {row[1] for row in TABLE} | {"collective.order", "collective.shape", "collective.left", "step.hangs"}
    assert told == set(rules.IDS)
    assert all(rules.IDS.values())


def test_the_rules_do_not_change_the_evidence() -> None:
    for row in TABLE:
        before = msgspec.json.encode(row[0])
        rules.findings([row[0]])
        assert msgspec.json.encode(row[0]) == before


# Several ranks, several steps, several findings


def test_what_several_ranks_and_steps_show_is_told_once() -> None:
    one, other = waits("item"), waits("item")
    other.rank = 1
    (finding,) = rules.findings([one, other])
    assert "rank" not in finding.message
    (finding,) = rules.findings([one, evidence(rank=1)])
    assert finding.message.endswith("On rank 0 only.")


def test_the_worst_come_first() -> None:
    found = evidence(
        gpus=3, weights=SPLIT, steps=[step(gradients=gradients(encoder="none"), copies=waits("item").steps[0].copies)]
    )
    assert [finding.severity for finding in rules.findings([found])] == ["error", "warning", "note"]


def test_what_made_the_step_fail_is_not_told_twice() -> None:
    """Not as a warning beside the error, nor as an exception beside what explains it."""
    x = source(tensor([8, 64], dtype="float64", made="train.py:3"))
    broken = failed(
        "mat1 and mat2 must have the same dtype", "addmm", x, tensor([64, 64]), at=place("encoder", "model.py:10")
    )
    call = Call(module=MODEL, source="train.py:5", inputs=[x])
    (finding,) = rules.findings([evidence(steps=[Step(calls=[call], failure=broken)])])
    assert (finding.id, finding.severity, finding.source) == ("type.float64_input", "error", "train.py:3")


def test_a_float64_parameter_explains_the_op_that_failed_behind_it() -> None:
    weights = [weight("prior", dtype="float64", made="build.py:9"), weight("decoder.weight")]
    broken = failed(
        "expected scalar type Double but found Float", "addmm", tensor([8, 64], dtype="float64"), tensor([64, 64])
    )
    (finding,) = rules.findings([evidence(weights=weights, steps=[Step(failure=broken)])])
    assert (finding.id, finding.severity, finding.where, finding.source) == (
        "type.float64_parameter", "error", MODEL, "build.py:9"
    )  # fmt: skip


def test_ids_that_were_cast_are_one_finding() -> None:
    """They are float64 among float32, too."""
    for ends in (True, False):
        given = looked_up("float64", ends)
        given.steps[0].calls.insert(0, Call(module=MODEL, source="train.py:5", inputs=[ids("float64", "train.py:3")]))
        (finding,) = rules.findings([given])
        assert finding.id == "type.float_ids"
        assert "is no remedy" in finding.message


def test_a_cast_that_keras_makes_is_not_the_user_s() -> None:
    given = looked_up("float32", ends=False)
    given.steps[0].calls.insert(0, Call(module=MODEL, source="train.py:5", inputs=[ids()]))
    assert rules.findings([given]) == []


# Devices


def test_a_hidden_module_explains_the_failure() -> None:
    found = mismatch(
        tensor([8, 64], origin="output of encoder"), tensor([64, 64], "cpu", origin="hidden weight of blocks[0]")
    )
    found.modules = hidden(False).modules
    (finding,) = [f for f in rules.findings([found]) if f.severity == "error"]
    assert (finding.id, finding.where, finding.source) == ("placement.hidden", "blocks[0]", "model.py:7")
    assert "blocks[0] and 2 more are not registered" in finding.message


def test_a_stray_parameter_explains_the_failure() -> None:
    found = stray("parameter", "cpu")
    scale = tensor([64], "cpu", origin="parameter encoder.scale")
    broken = failed(SAME_DEVICE, "mul", tensor([8, 64], origin="output of encoder"), scale, at=place("encoder"))
    found.steps = [Step(failure=broken)]
    (finding,) = rules.findings([found])
    assert finding.id == "placement.parameter"


def test_an_optimizer_s_state_explains_the_failure_of_the_update() -> None:
    found = slots("cpu")
    broken = failed(SAME_DEVICE, "addcdiv", tensor([64]), tensor([64], "cpu"), at=place("", "train.py:8", "update"))
    found.steps = [step(failure=broken)]
    (finding,) = rules.findings([found])
    assert finding.id == "placement.optimizer_state"


def test_a_model_that_never_left_the_host_is_named() -> None:
    kernel = tensor([64, 64], "cpu", origin="parameter encoder.weight")
    broken = failed(SAME_DEVICE, "linear", source(tensor([8, 64])), kernel, at=place("encoder", "model.py:10"))
    (finding,) = rules.findings(
        [evidence(weights=[weight(name, "cpu") for name in NAMES], steps=[Step(failure=broken)])]
    )
    assert (finding.id, finding.where, finding.fix) == ("placement.parameter", MODEL, 'model = model.to("cuda:0")')


def test_a_constant_made_on_the_host_is_named_with_its_line() -> None:
    made = tensor([8], "cpu", "int64", origin="constant", made="model.py:9")
    (finding,) = [f for f in rules.findings([mismatch(tensor([8, 64]), made)]) if f.severity == "error"]
    assert (finding.id, finding.source) == ("placement.activation", "model.py:9")
    assert 'device="cuda:0"' in finding.fix


def test_an_input_of_the_loss_is_blamed_where_it_is_used() -> None:
    target = tensor([8], "cpu", origin="input y")
    broken = failed(
        SAME_DEVICE, "mse_loss", tensor([8], origin="output of decoder"), target, at=place("", "train.py:6", "loss")
    )
    (finding,) = rules.findings([evidence(steps=[step(failure=broken)])])
    assert (finding.id, finding.where, finding.source) == ("input.device", "", "train.py:6")
    assert finding.fix == 'y = y.to("cuda:0")'


@pytest.mark.parametrize("distributed", ["ddp", "data_parallel", "mirrored"])
def test_a_wrapper_places_and_moves_by_itself(distributed: str) -> None:
    for found in (one_device("cuda:0"), between("forward"), between("backward")):
        for each in found.steps:
            each.distributed = distributed
        assert rules.findings([found]) == []


def test_one_large_module_is_no_lopsided_split() -> None:
    weights = [weight("table.weight", shape=[4096, 64]), weight("decoder.weight", "cuda:1")]
    assert rules.findings([evidence(gpus=2, weights=weights)]) == []


def test_a_user_who_did_not_place_gets_a_note() -> None:
    found = evidence(gpus=2, moves=[moved("cuda:0", "build.py:9", whole=True)])
    assert [(f.id, f.severity) for f in rules.findings([found])] == [("placement.one_device", "note")]
    found.own_step = False
    assert [(f.id, f.severity) for f in rules.findings([found])] == [("placement.one_device", "warning")]
    found.moved = True
    assert [(f.id, f.severity) for f in rules.findings([found])] == [("placement.one_device", "note")]


def test_a_forward_in_the_wrong_place_is_not_told_of_its_backward() -> None:
    found = between("forward")
    for each in found.steps:
        each.copies = [*each.copies, *between("backward").steps[0].copies]
    assert [finding.id for finding in rules.findings([found])] == ["copy.implicit"]


# Numbers


def test_the_share_of_the_step_s_time_is_told() -> None:
    found = waits("item")
    found.steps[-1].seconds = 1.0
    assert "30% of the step's time" in rules.findings([found])[0].message
    found.steps[-1].seconds = 100.0
    assert "step's time" not in rules.findings([found])[0].message


def test_what_a_later_step_raises_is_told_beside_what_was_seen() -> None:
    found = waits("item")
    found.later = Failure(
        exception="NotImplementedError",
        message="numpy() is only available when eager execution is enabled.",
        operation="",
        tensors=[],
        place=place("", "train.py:30"),
    )
    assert next((each.id, each.source) for each in rules.findings([found])) == ("step.raised", "train.py:30")
    assert "sync.item" in [each.id for each in rules.findings([found])]


def test_a_module_is_written_as_a_program_writes_it() -> None:
    assert words.code("layers.0.fc") == "model.layers[0].fc"
    assert words.code("0.fc") == "model[0].fc"
    assert words.code("2") == "model[2]"


def test_one_gpu_of_several_is_no_matter_where_nobody_asked_for_them() -> None:
    found = one_device("cuda:0")
    found.moves = [moved("cuda:0", "model.py:4", whole=True)]
    found.own_step = True
    assert [each.severity for each in rules.findings([found])] == ["note"]
    found.asked = False
    assert rules.findings([found]) == []


def test_no_optimizer_is_for_the_user_s_own_step() -> None:
    assert rules.findings([optimizer(2, own_step=False)]) == []


def test_gradients_may_stay_where_nothing_was_updated() -> None:
    found = kept("encoder.weight")
    for each in found.steps:
        each.optimizers = []
    assert rules.findings([found]) == []


def test_gradients_that_are_infinite_are_a_loss_scaler_s_business() -> None:
    found = learns(encoder="not_finite")
    for each in found.steps:
        each.loss_scaled = True
    assert rules.findings([found]) == []


def test_a_cut_that_makes_an_array_is_not_told_as_a_wait() -> None:
    seen = tensor([8, 64], "GPU:0", origin="output of encoder")
    found = learns("keras", encoder="none", cuts=[cut("numpy", seen)])
    for each in found.steps:
        each.copies = [copied("numpy", seen, "CPU:0", place(MODEL, "model.py:12"))]
    assert [finding.id for finding in rules.findings([found])] == ["learning.no_gradient"]


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ("rate: 1.0 -> 0.5", "tf.constant(rate)"),
        ("batch[0]: 1 -> 2", "tf.constant(batch)"),
        ("x: float32[8, 16] -> float32[7, 16]", "reduce_retracing=True"),
        ("a new tf.function", "outside of the step"),
        ("state: another object, a State", "self.state = state"),
        ("a Python object, or what the function closes over", "one object for all steps"),
    ],
)
def test_what_changed_says_how_to_keep_a_function(change: str, fix: str) -> None:
    found = evidence("keras", retraces=[Retrace(function="train", source="t.py:8", count=3, change=change)])
    assert fix in rules.findings([found])[0].fix


# Ranks that wait: what was noted of their calls is in test_doctor_hanging.py


def test_calls_that_meet_are_no_finding() -> None:
    call = Collective(operation="all_reduce", shape=[8], dtype="float32", source="train.py:7")
    assert rules.hanging([[call], [call]], []) == []
