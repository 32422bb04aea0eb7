"""Evidence of things on the wrong device, copied or waited for, for the table of the rules."""

from typing import Any

from doctor_evidence import (
    NAMES,
    Row,
    copied,
    evidence,
    failed,
    host,
    modules,
    moved,
    place,
    source,
    step,
    tensor,
    weight,
)

from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.ops import Call, Module, NotPretended, Soft
from parity.trace.keys import MODEL

KIB = 256  # float32 numbers
SPLIT = [weight("encoder.weight"), weight("decoder.weight", "cuda:1")]
KERAS_SPLIT = [weight("encoder.weight", "GPU:0"), weight("decoder.weight", "GPU:1")]
SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


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


def softly(**fields: Any) -> Evidence:
    op = Soft(asked="GPU:4", ran="GPU:0", operation="MatMul", place=place("encoder", "model.py:10"), count=2)
    return evidence("keras", steps=[step("GPU:0", **({"soft": [op]} | fields))])


def not_pretended(*calls: str) -> Evidence:
    """Calls of one kind, at line 3 and the following."""
    noted = [
        NotPretended(call=call, source=f"train.py:{at}", instead="it does nothing") for at, call in enumerate(calls, 3)
    ]
    return evidence(not_pretended=noted)


def refused(exception: str) -> Evidence:
    """A step that waited for the device and then failed."""
    broken = failed("Virtual GPUs do not imitate torch.cuda.graph.", "", at=place("", "train.py:12"))
    broken.exception = exception
    return evidence(steps=[step(failure=broken, copies=waits("item").steps[0].copies)])


DEVICE_ROWS: list[Row] = [
    (not_pretended("Stream"), "gpu.not_pretended", "note", "", "train.py:3", "", not_pretended()),
    (one_device("cuda:0"), "placement.one_device", "warning", MODEL, "model.py:4", "i % 2", one_device("cuda:1")),
    (lopsided(9), "placement.lopsided", "warning", MODEL, "model.py:4", '.to("cuda:1")', lopsided(5)),
    (stray("parameter", "cpu"),
        *("placement.parameter", "error", "encoder", "model.py:8", 'nn.Parameter(model.encoder.scale.to("cuda:0"))'),
        stray("parameter", "cuda:0")),
    (stray("buffer", "cpu"),
        *("placement.buffer", "error", "encoder", "model.py:8", 'model.encoder.scale.to("cuda:0")'),
        stray("buffer", "cuda:0")),
    (slots("cpu"),
        *("placement.optimizer_state", "error", "encoder", "build.py:9", "torch.optim.SGD(model.parameters())"),
        slots("cuda:0")),
    (hidden(False), "placement.hidden", "error", "blocks[0]", "model.py:7", "nn.ModuleList(blocks)", hidden(True)),
    (mismatch(tensor([8, 64], origin="output of encoder"), tensor([64, 64], "cuda:1"), weights=SPLIT),
        *("placement.activation", "error", "decoder", "model.py:11", 'x = x.to("cuda:1")'),
        mismatch(weights=SPLIT, ends=False)),
    (evidence(gpus=3, weights=SPLIT), *("placement.unused", "note", "", "build.py:3", "i % 3"),
        evidence(gpus=2, weights=SPLIT)),
    (softly(), "placement.soft", "warning", "encoder", "model.py:10", 'tf.device("GPU:0")', softly(soft=[])),
    (between("backward"), *("placement.backward", "warning", "decoder", "model.py:11", 'tf.device("GPU:1")'),
        between("update")),
    (between("forward"),
        *("copy.implicit", "warning", "decoder", "model.py:11", 'with tf.device("GPU:1"): x = model.decoder(x)'),
        between("forward", "parameter decoder.weight", module="")),
    (cpu_batch("cpu"), "input.device", "error", "encoder", "train.py:5", 'src = src.to("cuda:0")', cpu_batch("cuda:0")),
    (again(2), "input.copied_again", "warning", "encoder", "model.py:9", 'src = src.to("cuda:0")', again(0)),
    (again(2, "keras"),
        *("input.copied_again", "warning", "encoder", "model.py:9", 'with tf.device("GPU:0"): src = tf.identity(src)'),
        again(0, "keras")),
    (batch(64, contiguous=False), *("input.not_contiguous", "warning", "", "train.py:4", "src.contiguous()"),
        batch(63, contiguous=False)),
    (batch(1024, pinned=False), "input.not_pinned", "note", "", "train.py:4", "pin_memory", batch(1023, pinned=False)),
    (sent(), "copy.constant", "warning", "", "train.py:5", "register_buffer", sent("input src")),
    (sent(side="keras", what="constant"), "copy.constant", "warning", "", "train.py:5", "tf.constant",
        sent("output of x")),
    (sent("", again=1), "copy.constant", "warning", "", "train.py:5", "register_buffer", sent("")),
    (parameter_copied("parameter encoder.weight"),
        *("copy.parameter", "warning", "decoder", "model.py:11", 'model.encoder.to("cuda:1")'),
        parameter_copied("output of encoder")),
    (waits("cpu"), "sync.cpu", "warning", "", "train.py:9", "loss.detach()", waits("cpu", "cpu")),
    (waits("item"), "sync.item", "warning", "", "train.py:9", "loss.detach()", waits("item", "cpu")),
    (waits("numpy"), "sync.numpy", "warning", "", "train.py:9", "loss.detach()", waits("numpy", "cpu")),
    (waits("print"), "sync.print", "warning", "", "train.py:9", "if step % 100 == 0", printed_once()),
    (waits("bool"), "sync.bool", "warning", "", "train.py:9", "torch.where(", waits("bool", "cpu")),
    (waits("boolean_index"), "sync.boolean_index", "warning", "", "train.py:9", "torch.where(", waits("bool", "cpu")),
]  # fmt: skip
