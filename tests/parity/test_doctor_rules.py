"""Each rule on evidence that has its fault, and on the corrected one, in which nothing is found."""

import inspect
from collections.abc import Iterator

import pytest
from doctor_device_rows import (
    DEVICE_ROWS,
    SAME_DEVICE,
    hidden,
    mismatch,
    refused,
)
from doctor_evidence import (
    NAMES,
    copied,
    cut,
    evidence,
    failed,
    place,
    source,
    tensor,
    weight,
)
from doctor_keras_rows import KERAS_ROWS
from doctor_torch_rows import SHARED, TORCH_ROWS, on_one
from doctor_training_rows import TRAINING_ROWS
from doctor_value_rows import VALUE_ROWS, learns

from parity.doctor import rules
from parity.doctor.evidence import Step
from parity.doctor.evidence.ops import Retrace
from parity.doctor.finding import Finding
from parity.trace.keys import MODEL

TABLE = [*DEVICE_ROWS, *VALUE_ROWS, *TRAINING_ROWS, *TORCH_ROWS, *KERAS_ROWS]


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[1]}-{number}" for number, row in enumerate(TABLE)])
def test_a_fault_gives_its_finding_and_its_correction_none(row: tuple) -> None:
    seen, name, severity, where, line, fix, corrected = row
    (finding,) = rules.findings([seen])
    assert (finding.id, finding.severity, finding.where, finding.source) == (name, severity, where, line)
    assert fix in finding.fix and "\n" not in finding.fix
    assert finding.message.endswith(".") or name == "step.raised"
    assert [found for found in rules.findings([corrected]) if found.id == name] == []


def test_ranks_on_one_gpu_are_named_unless_each_sees_another_as_its_first() -> None:
    (finding,) = rules.findings(on_one("", ""))
    assert (finding.id, finding.severity, finding.where, finding.source) == SHARED[:4]
    assert finding.fix.startswith(SHARED[4])
    assert rules.findings(on_one("0", "1")) == []


def test_every_id_is_known_and_every_known_one_is_tested() -> None:
    of_several_ranks = {"collective.order", "collective.shape", "collective.left", "replicas.parted", "replicas.start"}
    of_several_ranks |= {"placement.shared_gpu"}
    told = {row[1] for row in TABLE} | of_several_ranks | {"step.hangs"}
    assert told == set(rules.IDS)


# Several ranks, several steps, several findings


def test_a_float64_parameter_explains_the_op_that_failed_behind_it() -> None:
    weights = [weight("prior", dtype="float64", made="build.py:9"), weight("decoder.weight")]
    broken = failed(
        "expected scalar type Double but found Float", "addmm", tensor([8, 64], dtype="float64"), tensor([64, 64])
    )
    (finding,) = rules.findings([evidence(weights=weights, steps=[Step(failure=broken)])])
    assert (finding.id, finding.severity, finding.where, finding.source) == (
        "type.float64_parameter", "error", MODEL, "build.py:9"
    )  # fmt: skip


# Devices


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


# Numbers


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


def test_every_function_that_yields_findings_is_asked() -> None:
    """Rules are known by their annotations; what is told of all ranks together is asked by itself."""
    public = [each for file in rules.FILES for name, each in vars(file).items() if not name.startswith("_")]
    yielding = {
        each for each in filter(inspect.isfunction, public) if each.__annotations__.get("return") == Iterator[Finding]
    }
    assert {each.__name__ for each in yielding - set(rules.RULES)} == {"shared_gpu", "no_optimizer"}
