"""A user's model is built by their function and called as its forward takes inputs; mistakes are told in one line."""

import pytest
import torch
from pair_models import Answer
from pair_runs import HERE, case
from torch import nn

from parity.core.errors import BackendError, UsageError
from torch_impl.record.pair.build import build, call, ready
from torch_impl.record.pair.outputs import named

A, B, C = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), torch.tensor([3.0, 3.0])
CPU = torch.device("cpu")


def shapes(**names: str) -> dict[str, dict]:
    """Inputs, each with torch's name for it or none; a double underscore is a dot."""
    return {name.replace("__", "."): {"shape": [2], "torch": torch_name} for name, torch_name in names.items()}


def made(builder: str, at: str = "float32", **fields):
    return build(case(builder, **fields).model, at, HERE)


def called(builder: str, inputs: dict[str, dict], *values: torch.Tensor):
    pair = case(builder, inputs).model
    return call(build(pair, "float32", HERE), pair, dict(zip(inputs, values, strict=True)))


TAKEN = [
    ("Takes", shapes(a="", b=""), [A, B], A + 2 * B),
    ("Takes", shapes(b="", a=""), [A, B], B + 2 * A),
    ("Takes", shapes(x="b", y="a"), [A, B], B + 2 * A),
    ("Takes", shapes(x="", y=""), [A, B], A + 2 * B),
    ("Takes", shapes(x="", a=""), [A, B], B + 2 * A),
    ("Takes", shapes(scale="", x="", y=""), [C, A, B], 3 * (A + 2 * B)),
    ("TakesOne", shapes(a="", inner__b=""), [A, B], A + 2 * B),
    ("TakesNested", shapes(a="", batch__b="", batch__c=""), [A, B, C], A + 2 * B + 3 * C),
    ("TakesNested", shapes(x="a", y="batch.c", z="batch.b"), [A, B, C], A + 2 * C + 3 * B),
    ("TakesAny", shapes(one="", other=""), [A, B], A - B),
]


@pytest.mark.parametrize(("builder", "inputs", "values", "expected"), TAKEN)
def test_inputs_reach_the_model(builder, inputs, values, expected):
    assert torch.equal(called(builder, inputs, *values), expected)


@pytest.mark.parametrize(
    ("builder", "inputs", "message"),
    [
        ("Takes", shapes(a="", x="scales"), r"inputs\.x: torch = 'scales': forward takes no argument 'scales' \(did"),
        ("Takes", shapes(a=""), r"forward\(a, b, scale\) cannot be given the inputs a: missing.*'b'"),
        ("Takes", shapes(p="", q="", r=""), r"cannot be given the inputs p, q, r: too many positional arguments"),
    ],
)
def test_inputs_that_do_not_fit(builder, inputs, message):
    with pytest.raises(UsageError, match=message) as caught:
        called(builder, inputs, *[A, B, C][: len(inputs)])
    assert "\n" not in str(caught.value)


def test_kwargs_of_one_side_win():
    model = made("MLP", kwargs={"width": 3}, torch_kwargs={"width": 5})
    assert model.first.out_features == 5
    assert made("MLP", kwargs={"width": 3}).first.out_features == 3


def test_a_class_is_a_builder_too():
    assert isinstance(made("torch.nn:Linear", kwargs={"in_features": 3, "out_features": 2}), nn.Linear)


@pytest.mark.parametrize(
    ("builder", "fields", "error", "message"),
    [
        ("no_module", {}, UsageError, r"torch=pair_models:no_module: expected a torch\.nn\.Module, received int"),
        ("MLPs", {}, UsageError, r"pair_models has no 'MLPs' \(did you mean 'MLP'\?\)"),
        ("MLP", {"kwargs": {"widht": 3}}, UsageError, r"called as MLP\(widht=\.\.\.\), .*: got an unexpected.*'widht'"),
        ("Returns", {}, UsageError, r"called as Returns\(\), .*: missing a required argument: 'what'"),
        ("failing", {}, BackendError, r"cannot be built: RuntimeError: no such weights, at \S*pair_models\.py:\d+$"),
        ("lazy", {}, UsageError, r"no shape before the first call"),
        ("scripted", {}, UsageError, r"torch=\S+: \(model\) is a torch\.jit\.ScriptModule, .*; return the nn\.Module"),
        ("scripted", {"kwargs": {"within": True}}, UsageError, r": 0 is a torch\.jit\.ScriptModule"),
    ],
)
def test_what_cannot_be_built(builder, fields, error, message):
    with pytest.raises(error, match=message) as caught:
        made(builder, **fields)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_not_there():
    with pytest.raises(UsageError, match=rf"no module 'pair_modells' in {HERE[0]}"):
        made("pair_modells:MLP")


def test_a_forward_that_fails_is_told_with_the_users_line():
    message = r"torch=pair_models:Failing: forward fails: RuntimeError: .*, at \S*pair_models\.py:\d+$"
    with pytest.raises(BackendError, match=message):
        called("Failing", shapes(x=""), A)


@pytest.mark.parametrize(("at", "dtype"), [("float64", torch.float64), ("float32", torch.float32)])
def test_a_model_in_half_precision_is_as_wide_as_the_run(at, dtype):
    places: list[str] = []
    model = ready(case("linear_in_half"), at, HERE, CPU, places)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert bool(places) == (at == "float64")


def test_a_model_is_drawn_from_the_cases_seed():
    first, again = (ready(case("MLP"), "float32", HERE, CPU, []) for _ in range(2))
    assert torch.equal(first.first.weight, again.first.weight)


def outputs(what: str, **wanted: str | int) -> list[tuple[str, torch.Tensor]]:
    pair = case(
        "Returns",
        {"x": {"shape": [2, 3]}},
        kwargs={"what": what},
        outputs={name: {"torch": path} for name, path in wanted.items()},
    ).model
    torch.manual_seed(0)
    return named(pair, call(build(pair, "float32", HERE), pair, {"x": torch.ones(2, 3)}))


@pytest.mark.parametrize("what", ["tuple", "dict", "point"])
def test_every_tensor_is_an_output(what):
    found = outputs(what)
    assert [name for name, _ in found] == ["(model)", "(model)#1"]
    assert [x.dtype for _, x in found] == [torch.float32, torch.int64]


@pytest.mark.parametrize(
    ("what", "wanted", "expected"),
    [
        ("tensor", {"a": ""}, {"a": "main"}),
        ("tuple", {"a": 0, "ids": "2"}, {"a": "main", "ids": "ids"}),
        ("tuple", {"ids": -1}, {"ids": "ids"}),
        ("dict", {"ids": "nested.ids", "a": "logits.main"}, {"ids": "ids", "a": "main"}),
        ("dict", {"ids": "nested"}, {"ids": "ids"}),
        ("point", {"a": "x", "ids": 1}, {"a": "main", "ids": "ids"}),
        ("dataclass", {"b": "states.1", "a": "logits"}, {"b": "plus 2", "a": "main"}),
        ("dataclass", {"logits": "", "states.1": ""}, {"logits": "main", "states.1": "plus 2"}),
    ],
)
def test_outputs_by_name(what, wanted, expected):
    (_, main), *_ = outputs("tensor")
    values = {"main": main, "ids": main.argmax(-1), "plus 2": main + 2}
    found = outputs(what, **wanted)
    assert [name for name, _ in found] == [f"(model).{name}" for name in expected]
    assert all(torch.equal(x, values[one]) for (_, x), one in zip(found, expected.values(), strict=True))


@pytest.mark.parametrize(
    ("what", "wanted", "message"),
    [
        ("none", {}, r"forward returned None"),
        ("text", {}, r"the model's output has no tensor in it: a str"),
        ("dict", {"a": "nestde"}, r"outputs\.a: torch = 'nestde': a dict has no 'nestde' \(did you mean 'nested'\?\)"),
        ("dict", {"a": "missing"}, r"outputs\.a: torch = 'missing': 'missing' is None"),
        ("tuple", {"a": 1}, r"outputs\.a: torch = 1: '1' is None"),
        ("tuple", {"a": 3}, r"outputs\.a: torch = 3: a tuple of 3 has no '3'; it has 0, 1, 2"),
        ("dataclass", {"a": "states"}, r"is a tuple of 2, expected a tensor; name one of states\.0, states\.1"),
        ("dataclass", {"a": ""}, r"torch = 'a': a Answer has no 'a'; it has logits, states, loss"),
        ("dict", {"a": "nested.id"}, r"a dict has no 'id' \(did you mean 'ids'\?\)"),
    ],
)
def test_outputs_that_are_not_there(what, wanted, message):
    with pytest.raises(UsageError, match=message):
        outputs(what, **wanted)


def test_parts_that_are_none_are_no_outputs():
    answer = Answer(A, (B,), None)
    assert [name for name, _ in named(case("MLP").model, answer)] == ["(model)", "(model)#1"]
