"""What torch records of a pair's runs."""

import gc

import numpy as np
import pair_helpers
import pytest
import torch
from pair_runs import case, recorded, surveyed
from torch import nn

from parity.core import random
from parity.core.errors import BackendError, UsageError
from torch_impl.record import masks

X6 = {"x": {"shape": [4, 6]}}
IDS = {"ids": {"shape": [2, 5], "dtype": "int64", "range": [0, 10]}}


def drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(random.representable(random.normal(0, name, shape), "float32"))


def test_what_a_run_has_built_is_freed(tmp_path):
    recorded(case("MLP"), tmp_path)
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each).__name__ == "MLP"]


def test_cross_entropy_has_the_classes_last_where_keras_has_them(tmp_path):
    outputs = {"y": {"keras_layout": "b c t -> b t c"}}
    kwargs = {"in_channels": 3, "out_channels": 5, "kernel_size": 1}
    x = {"x": {"shape": [2, 3, 4]}}
    made = case("torch.nn:Conv1d", x, outputs=outputs, kwargs=kwargs, train={"loss": "cross_entropy"})
    step = recorded(made, tmp_path).step(0)
    target, output = (torch.tensor(np.array(step[key])) for key in ("input/target", "activation/(model).y"))
    assert target.shape == (2, 4)
    assert step["loss/loss"] == pytest.approx(nn.functional.cross_entropy(output, target).item(), rel=1e-14)


@pytest.mark.slow
def test_an_input_named_target_is_what_the_loss_is_given(tmp_path):
    made = case("MLP", {"x": {"shape": [5, 3]}, "target": {"shape": [5, 4], "scale": 8.0}}, train={})
    step = recorded(made, tmp_path).step(0)
    assert np.array_equal(step["input/target"], 8 * drawn("input/target/0", (5, 4)))
    assert "input/input#1" not in step
    wrong = case("MLP", {"x": {"shape": [5, 3]}, "target": {"shape": [5]}}, train={})
    with pytest.raises(UsageError, match=r"inputs\.target: shape \[5\], expected \[5, 4\] to match the output"):
        recorded(wrong, tmp_path)


def test_the_users_own_loss_and_optimizer(tmp_path):
    own = {"torch_loss": "pair_models:loss_of_one", "keras_loss": "a:b"}
    own |= {"torch_optimizer": "pair_models:momentum", "keras_optimizer": "a:b"}
    step = recorded(case("MLP", train=own), tmp_path).step(0)
    assert step["loss/loss"] == pytest.approx(abs(step["activation/(model)"] - step["input/target"]).mean())
    assert step["optimizer_state/learning_rate"] == 0.25
    assert "optimizer_state/first.weight.momentum_buffer" in step


def test_a_scheduler_beside_an_optimizer_follows_each_step(tmp_path):
    """The rate is that of the next step."""
    own = {"torch_optimizer": "pair_models:scheduled", "keras_optimizer": "a:b", "steps": 3}
    trace = recorded(case("MLP", train=own), tmp_path)
    assert [trace.step(number)["optimizer_state/learning_rate"] for number in range(2)] == [0.125, 0.0625]


def test_a_users_loss_of_named_outputs_is_given_a_dict(tmp_path):
    own = {"torch_loss": "pair_models:loss_of_all", "keras_loss": "a:b"}
    made = case(
        "Words", {"x": {"shape": [2, 5, 4]}}, train=own, outputs={"first": {"torch": 0}, "second": {"torch": 1}}
    )
    step = recorded(made, tmp_path).step(0)
    first, second = step["activation/(model).first"], step["activation/(model).second"]
    assert step["loss/loss"] == pytest.approx(np.square(first).mean() + second.sum())


@pytest.mark.parametrize(
    ("what", "name", "message"),
    [
        ("loss", "not_a_number", r"expected one number, received the shape \(5, 4\)"),
        (
            "optimizer",
            "no_optimizer",
            r"expected a torch\.optim\.Optimizer, or one and its scheduler, received NoneType",
        ),
        ("loss", "no_loss", r"called as no_loss\(outputs, target\)"),
    ],
)
def test_functions_that_cannot_be_used(tmp_path, what, name, message):
    own = {f"torch_{what}": f"pair_models:{name}", f"keras_{what}": "a:b"}
    with pytest.raises(UsageError, match=message):
        recorded(case("MLP", train=own), tmp_path)


def test_dropout_takes_the_shared_masks_by_order(tmp_path):
    trace = recorded(case("Dropping", X6, train={}), tmp_path)
    for number in range(2):
        step = trace.step(number)
        # By the order of the draws, among those for tensors of as many elements.
        draws = [(0, (4, 6), 0.5), (1, (4, 6), 0.25), (2, (4, 6), 0.5)]
        kept = [random.keep(0, random.mask_name(24), 0, number, *draw) for draw in draws]
        x = step["input/input"]
        assert np.array_equal(step["activation/first"], np.where(kept[0], 2 * x, 0))
        hidden = step["activation/linear"]
        assert np.allclose(step["activation/second"], np.where(kept[1], hidden / 0.75, 0), rtol=1e-15)
        for run in ("low", "high"):
            assert np.array_equal(trace.step(number, run)["activation/(model)"] != 0, kept[1] & kept[2])
    assert np.array_equal(trace.step(2)["activation/first"], trace.step(0)["input/input"])  # an evaluation drops none
    assert nn.functional.dropout(torch.ones(1000), 0.5).sum() not in (0, 1000)  # what was replaced is back
    assert pair_helpers.drop is nn.functional.dropout


@pytest.mark.slow
def test_the_loaded_files_are_searched_once_per_run(tmp_path, monkeypatch):
    """However many steps there are: the files are thousands."""
    trained, searches, search = case("Dropping", X6, train={}), [], masks._search
    surveyed(trained, tmp_path)
    monkeypatch.setattr(masks, "_search", lambda *given: searches.append(1) or search(*given))
    assert trained.steps == 2
    recorded(trained, tmp_path)
    assert len(searches) <= 2  # in the low and in the high run


def test_a_model_under_autocast(tmp_path):
    made = case("MLP", precision="bfloat16", train={})
    trace = recorded(made, tmp_path)
    low = trace.step(0, "low")
    assert str(low["activation/first"].dtype) == "bfloat16"
    assert low["gradient/first.weight"].dtype == np.float32
    assert low["input/input"].dtype == np.float32
    assert trace.step(0)["activation/first"].dtype == np.float64


def test_tied_and_sparse_gradients(tmp_path):
    step = recorded(case("Tied", IDS), tmp_path / "tied").step(0)
    assert [key for key in step if key.startswith("gradient/")] == ["gradient/embed.weight"]
    assert step["gradient/embed.weight"].shape == (10, 4)
    step = recorded(case("Lookup", IDS), tmp_path / "sparse").step(0)
    assert step["gradient/embed.weight"].shape == (10, 4)
    assert "gradient/(input).ids" not in step


@pytest.mark.slow
def test_recomputed_activations_are_recorded_once(tmp_path):
    trace = recorded(case("Recomputing", train={}), tmp_path)
    step = trace.step(0)
    assert [key for key in step if key.startswith("activation/block.0")] == ["activation/block.0"]
    assert "gradient/block.0.weight" in step


@pytest.mark.slow
def test_a_float64_run_is_lifted_and_says_where(tmp_path):
    trace = recorded(case("Island", {"x": {"shape": [2, 4]}}), tmp_path)
    low, high = trace.accounts
    assert low.lifted == []
    assert "(model): .to(float32)" in high.lifted
    assert trace.trace.manifest.lifted == high.lifted
    step, survey = trace.step(0), surveyed(case("Island", {"x": {"shape": [2, 4]}}), tmp_path).activations
    assert np.array_equal(step["activation/(model)"], survey["(model)"])
    gap = abs(trace.step(0, "low")["activation/(model)"] - step["activation/(model)"]).max()
    assert 1e-9 < gap < 1e-5


@pytest.mark.slow
def test_outputs_without_gradient_are_recorded_alone(tmp_path):
    made = case("Returns", kwargs={"what": "ids"})
    step = recorded(made, tmp_path).step(0)
    assert step["activation/(model)"].dtype == np.int64
    assert not any(array.any() for key, array in step.items() if key.startswith("gradient/"))
    with pytest.raises(UsageError, match=r"no output is float"):
        recorded(case("Returns", kwargs={"what": "ids"}, train={}), tmp_path)


@pytest.mark.slow
def test_a_model_in_half_precision_and_in_inference_trains(tmp_path):
    made = case("linear_in_half", {"x": {"shape": [5, 4]}}, train={})
    trace = recorded(made, tmp_path)
    assert trace.step(0)["parameter/weight"].dtype == np.float64
    assert trace.accounts[1].lifted == ["weight and 1 more: held in float16"]


def test_an_evaluation_takes_no_other_path(tmp_path):
    """torch packs padded sequences into nested tensors in inference, if it may."""
    padding = {"shape": [2, 3], "dtype": "bool", "seed": 19}  # at the end of both sequences, as it has to be for that
    inputs = {"src": {"shape": [2, 3, 4]}, "src_key_padding_mask": padding}
    trace = recorded(case("encoder", inputs, train={}), tmp_path)
    low, high = trace.step(2, "low"), trace.step(2)
    assert low.keys() == high.keys()
    assert "activation/layers.0.linear1" in low
    assert np.allclose(low["activation/(model)"], high["activation/(model)"], atol=1e-5)


def test_another_model_than_the_surveys_is_refused(tmp_path):
    surveyed(case("MLP"), tmp_path)
    with pytest.raises(BackendError, match=r"first\.weight is built anew as \(6, 3\), expected \(4, 3\)"):
        recorded(case("MLP", kwargs={"width": 6}), tmp_path)
