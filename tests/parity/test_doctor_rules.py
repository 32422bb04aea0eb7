"""Each rule on evidence that has its fault, and on the corrected one, in which nothing is found."""

import inspect
from collections.abc import Iterator

import msgspec
import pytest
from doctor_device_rows import (
    DEVICE_ROWS,
    SAME_DEVICE,
    SPLIT,
    between,
    hidden,
    mismatch,
    not_pretended,
    one_device,
    refused,
    slots,
    stray,
    waits,
)
from doctor_evidence import (
    NAMES,
    copied,
    cut,
    evidence,
    failed,
    gradients,
    moved,
    place,
    source,
    step,
    tensor,
    weight,
)
from doctor_keras_rows import KERAS_ROWS
from doctor_torch_rows import SHARED, TORCH_ROWS, on_one
from doctor_training_rows import TRAINING_ROWS
from doctor_value_rows import VALUE_ROWS, ids, kept, learns, looked_up, optimizer

from parity.doctor import rules
from parity.doctor.evidence import Collective, Step
from parity.doctor.evidence.ops import Call, Failure, NotPretended, Retrace
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.trace.keys import MODEL

TABLE = [*DEVICE_ROWS, *VALUE_ROWS, *TRAINING_ROWS, *TORCH_ROWS, *KERAS_ROWS]


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[1]}-{number}" for number, row in enumerate(TABLE)])
def test_a_fault_gives_its_finding_and_its_correction_none(row: tuple) -> None:
    seen, name, severity, where, line, fix, corrected = row
    (finding,) = rules.findings([seen])
    assert (finding.id, finding.severity, finding.where, finding.source) == (name, severity, where, line)
    assert fix in finding.fix and "\n" not in finding.fix
    assert finding.message.endswith(".") or name == "step.raised"
    assert finding.side == seen.side
    assert [found for found in rules.findings([corrected]) if found.id == name] == []


def test_ranks_on_one_gpu_are_named_unless_each_sees_another_as_its_first() -> None:
    (finding,) = rules.findings(on_one("", ""))
    assert (finding.id, finding.severity, finding.where, finding.source) == SHARED[:4]
    assert finding.fix.startswith(SHARED[4])
    assert rules.findings(on_one("0", "1")) == []


def test_sound_evidence_has_no_findings() -> None:
    assert rules.findings([evidence(), evidence("keras")]) == []


def test_every_id_is_known_and_every_known_one_is_tested() -> None:
    of_several_ranks = {"collective.order", "collective.shape", "collective.left", "replicas.parted", "replicas.start"}
    of_several_ranks |= {"placement.shared_gpu"}
    told = {row[1] for row in TABLE} | of_several_ranks | {"step.hangs"}
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


def test_calls_that_are_not_pretended_are_one_note_for_each_consequence() -> None:
    seen = not_pretended("torch.cuda.Stream", "torch.cuda.Event")
    seen.not_pretended.insert(1, NotPretended(call="torch.cuda.utilization", source="train.py:8", instead="it is nan"))
    first, second = rules.findings([seen])
    assert second.message == "Virtual GPUs do not imitate torch.cuda.utilization: it is nan."
    assert first.message == (
        "Virtual GPUs do not imitate torch.cuda.Stream (also torch.cuda.Event at train.py:4): it does nothing."
    )


def test_a_call_that_is_refused_ends_the_step_and_not_what_was_seen_before() -> None:
    error, warning = rules.findings([refused("NotPretendedError")])
    assert (error.id, error.severity, error.source) == ("gpu.not_pretended", "error", "train.py:12")
    assert error.message.startswith("Virtual GPUs do not imitate torch.cuda.graph. The step ends here")
    assert warning.id == "sync.item"
    assert {finding.id for finding in rules.findings([refused("RuntimeError")])} == {"step.raised", "sync.item"}


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


def test_every_function_that_yields_findings_is_asked() -> None:
    """Rules are known by their annotations; what is told of all ranks together is asked by itself."""
    public = [each for file in rules.FILES for name, each in vars(file).items() if not name.startswith("_")]
    yielding = {
        each for each in filter(inspect.isfunction, public) if each.__annotations__.get("return") == Iterator[Finding]
    }
    assert {each.__name__ for each in yielding - set(rules.RULES)} == {"shared_gpu", "no_optimizer"}
