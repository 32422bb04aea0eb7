"""Evidence of wrong dtypes, shapes, modes and values, and of parameters that do not learn, for the rules' table."""

from typing import Any

from doctor_evidence import (
    NAMES,
    Row,
    cut,
    evidence,
    failed,
    gradients,
    modules,
    place,
    source,
    step,
    tensor,
    weight,
)

from parity.doctor.evidence import Backward, Evidence, LossCall, Optimizer
from parity.doctor.evidence.ops import Broadcast, Call, Eager, InPlace, Module, NotFinite, Retrace
from parity.trace.keys import MODEL


def ids(dtype: str = "int64", made: str = "", device: str = "cuda:0") -> Any:
    return tensor([2, 8], device, dtype, origin="input ids", made=made)


def embeds(**fields: Any) -> list[Module]:
    return [*modules(), Module(name="table", kind="Embedding", source="model.py:3", facts={"rows": 100}, **fields)]


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


HALF = {"half": "model.py:10"}
DETACHED = cut("detach", tensor([8, 64], origin="output of encoder"))
LOGGED = cut("detach", tensor([], origin="loss"), "train.py:8", "")

VALUE_ROWS: list[Row] = [
    (evidence("keras", retraces=[Retrace(function="train", source="t.py:8", count=3, change="rate: 1.0 -> 0.5")]),
        *("function.retraced", "warning", "", "t.py:8", "rate = tf.constant(rate)"), evidence("keras")),
    (evidence("keras", eager=[Eager(what="py_function", place=place("", "t.py:8"))]),
        *("function.eager", "warning", "", "t.py:8", "tf.py_function"), evidence("keras")),
    (doubles(["float64", "float32"], "float32"),
        *("type.float64_parameter", "warning", "encoder", "build.py:4", "model.encoder.float()"),
        doubles(["float64", "float64"], "float64")),
    (doubles(["float32", "float32"], "float64"),
        *("type.float64_input", "warning", "", "train.py:3", "src = src.float()"),
        doubles(["float32", "float32"], "float32")),
    (looked_up("float64", ends=False), *("type.float_ids", "warning", "table", "train.py:3", "tf.int32"),
        looked_up("int64", ends=False)),
    (looked_up("float32", ends=True), *("type.float_ids", "error", "table", "train.py:3", "ids = ids.long()"),
        looked_up("int64", ends=False)),
    (beyond(), "type.ids_range", "error", "table", "model.py:9", "largest_id + 1", evidence(modules=embeds())),
    (beyond("keras", "indices[0,3] = 105 is not in [0, 100)", "InvalidArgumentError"),
        *("type.ids_range", "error", "table", "model.py:9", "keras.layers.Embedding(106"),
        evidence("keras", modules=embeds())),
    (types("uint8"), "type.integer_input", "error", "encoder", "model.py:10", "src = src.float()", types("float32")),
    (mixed("bfloat16"), "type.mixed_parameters", "warning", MODEL, "model.py:6", "torch.float32", mixed("float32")),
    (evidence(steps=[step(**HALF)]),
        *("type.loss_scaling", "warning", "", "model.py:10", "scaler.scale(loss).backward()"),
        evidence(steps=[step(**HALF, loss_scaled=True)])),
    (learns(encoder="none", cuts=[LOGGED, DETACHED]),
        *("learning.no_gradient", "error", "encoder", "model.py:12", "# torch's own functions, without .detach()"),
        learns(cuts=[LOGGED, DETACHED])),
    (not_called(), "learning.no_gradient", "error", "encoder", "model.py:4", "model.encoder(x)", learns()),
    (one_parameter(), "learning.no_gradient", "warning", "encoder", "model.py:10", "model.encoder(x)", learns()),
    (learns(encoder="none", distributed="ddp"),
        *("learning.unused_ddp", "error", "encoder", "model.py:4", "find_unused_parameters=True"),
        learns(distributed="ddp")),
    (sends(), *("learning.send_without_backward", "error", "", "train.py:6", "output.backward(gradient)"),
        sends(Backward(source="train.py:7", scaled=False, kept=[]))),
    (optimizer(2), *("learning.no_optimizer", "error", "decoder", "train.py:2", "model.decoder.parameters()"),
        optimizer(4)),
    (learns(encoder="zero"), "learning.zero_gradient", "warning", "encoder", "model.py:4", "nn.LeakyReLU()", learns()),
    (frozen(False), "learning.frozen", "note", "encoder", "model.py:4", "requires_grad_(True)", frozen(True)),
    (kept("encoder.weight"), "learning.not_cleared", "error", "", "train.py:7", "optimizer.zero_grad()", kept()),
    (accumulated(scaled=False), *("learning.not_normalised", "warning", "", "train.py:7", "(loss / 2).backward()"),
        accumulated(scaled=True)),
    (accumulated(scaled=False, side="keras"),
        *("learning.not_normalised", "warning", "", "train.py:7", "loss = loss / 2"),
        accumulated(scaled=False, side="keras", line="train.py:8")),
    (mode(), "mode.eval", "warning", MODEL, "train.py:5", "model.train()", mode(training=True)),
    (mode("ReLU"), "mode.eval", "note", MODEL, "train.py:5", "model.train()", mode("ReLU", side="keras")),
    (mode(part=True), "mode.eval", "note", "drop", "model.py:6", "model.drop.train()", mode("ReLU", part=True)),
    (validated(True), "mode.train", "warning", MODEL, "train.py:5", "model.eval()", validated(False)),
    (validated(True, "keras"), "mode.train", "warning", MODEL, "train.py:5", "training=False",
        validated(False, "keras")),
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
    (sequence([9, 3], broadcasts=[positions([9, 16])]),
        *("shape.sequence_first", "warning", "encoder", "model.py:10", "batch_first=True"),
        sequence([4, 3], batch_first=True)),
    (loss("mse_loss", [8, 1], [8]), *("shape.loss_broadcast", "error", "", "train.py:6", "output = output.squeeze(-1)"),
        loss("mse_loss", [8], [8])),
    (by_hand([8], [8, 1]), *("shape.loss_broadcast", "error", "", "train.py:6", "target = tf.squeeze(target, -1)"),
        by_hand([8], [8, 1], "forward", "encoder")),
    (loss("cross_entropy", [2, 6, 6], [2, 6], straight=True),
        *("shape.class_axis", "warning", "", "train.py:6", "transpose(1, -1)"),
        loss("cross_entropy", [2, 6, 6], [2, 6])),
    (not_finite("log"), "finite.forward", "error", "encoder", "model.py:10", "clamp(min=1e-6).log()", learns()),
    (not_finite("SqrtGrad", "backward", "inf", "keras"), "finite.backward", "error", "encoder", "model.py:10",
        "tf.sqrt", learns()),
    (learns(encoder="not_finite"), "finite.backward", "error", "encoder", "model.py:4", "clip_grad_norm_", learns()),
    (in_place(True), "autograd.in_place", "error", "encoder", "model.py:12", "out = out + x", in_place(False)),
    (raised(True), "step.raised", "error", "out", "m.py:3", "", raised(False)),
]  # fmt: skip
