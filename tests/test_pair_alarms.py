"""Right ports that a careless comparison calls different match, and those with a fault much like them do not.

The models are those of tests/pairs/alarms_torch.py and its counterpart.
"""

import pytest
from judged import Judge, causes, judge_of

VECTORS, SEQUENCES = [8, 6], [2, 5, 16]
TARGET = "[inputs.target]\nshape = [8, 4]\n"
TRAINED = '[train]\noptimizer = "{}"\nlearning_rate = 0.01\nsteps = 3\n'
SGD, ADAM = TRAINED.format("sgd"), TRAINED.format("adam")
IMAGE = 'keras_layout = "n c h w -> n h w c"\n'
RULE = '[[weights]]\ntorch = "scale"\nkeras = "scale"\n'
LOSS = 'torch_loss = "alarms_torch:loss"\nkeras_loss = "alarms_keras:{}"\n'
OWN = '[train]\ntorch_optimizer = "alarms_torch:Adaptive"\nkeras_optimizer = "alarms_keras:{}"\nsteps = {}\n'
GELU = '[[expect]]\ncause = "constant.precision"\nwhere = "*.act"\nreason = "TensorFlow holds it in float32"\n'

# model, shape, the rest of the file, arguments of the fault in Keras's model
ROWS = {
    "calls in another order in training": ("Auxiliary", VECTORS, SGD, {"factor": 0.4}),
    "an average that begins as a copy, and a head of training alone": ("Averaged", VECTORS, SGD, {"decay": 0.5}),
    "a buffer that the port trains, without training": ("Table", VECTORS, RULE, {"power": 2}),
    "a buffer that the port does not train": ("Table", VECTORS, ADAM, {"trainable": True}),
    "an output that the loss leaves unused": ("Unused", VECTORS, TARGET + ADAM + LOSS.format("loss"), {}),
    "an image that is made of numbers, and channels that are dropped": ("Decoder", VECTORS, SGD, {"fault": "linear"}),
    "weights of attentions that drop, in a model of images": ("Seen", [4, 3, 6, 6], IMAGE + SGD, {"rate": 0.125}),
    "accepted slight differences under Adam": ("Blocks", SEQUENCES, ADAM + GELU, {"fault": "backward"}),
}
RIGHT = {"a buffer that the port does not train": {"trainable": False}}
FAULTY_FILE = {
    "a buffer that the port does not train": ADAM + RULE,
    "an output that the loss leaves unused": TARGET + ADAM + LOSS.format("of_both"),
}


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    return judge_of("alarms", backends, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_right_ports(row, judge):
    model, shape, more, _ = ROWS[row]
    result = judge(model, shape, more, **RIGHT.get(row, {}))
    assert result.verdict == "match", result


@pytest.mark.slow
@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize("row", ROWS)
def test_faults_much_like_them(row, judge):
    model, shape, more, fault = ROWS[row]
    result = judge(model, shape, FAULTY_FILE.get(row, more), **fault)
    assert result.verdict == "diverged", result


@pytest.mark.slow
def test_slots_in_another_form(judge):
    result = judge("Plain", VECTORS, OWN.format("Adaptive", 3))
    assert result.verdict == "match", result
    assert result.assumptions == [
        "the two optimizers keep exp_avg, exp_avg_sq in different forms, which are not compared: every update is"
    ]
    result = judge("Plain", VECTORS, OWN.format("slower", 3))
    assert result.verdict == "diverged" and result.assumptions == []


@pytest.mark.slow
def test_momentum_has_one_form_also_where_something_else_differs(judge):
    own = '[train]\ntorch_optimizer = "alarms_torch:momentum"\nkeras_optimizer = "alarms_keras:momentum"\n'
    result = judge("Leaky", VECTORS, own)
    assert result.verdict == "subprecision" and set(dict(causes(result))) == {"constant.precision"}
    assert result.checks["optimizer_state"].compared > 4 and not result.assumptions


@pytest.mark.usefixtures("verdicts_only")
def test_a_slot_of_which_no_update_was_made_may_be_wrong(judge):
    result = judge("Plain", VECTORS, OWN.format("Adaptive", 1))
    assert result.verdict == "diverged" and result.first_divergence.kind == "optimizer_state"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["scale", "mask"])
def test_an_attention_is_at_fault_and_not_its_projection(fault, judge):
    result = judge("Blocks", SEQUENCES, both={"gelu": False}, fault=fault)
    assert result.first_divergence.name == "second.part.inner"
    assert [where for _, where in causes(result)] == ["second.part.inner"]


@pytest.mark.slow
def test_a_missing_shortcut_is_no_order_of_norms(judge):
    result = judge("Blocks", SEQUENCES, both={"gelu": False}, fault="shortcut")
    assert causes(result) == [("module.wiring", "second.part")]


@pytest.mark.slow
def test_a_layer_that_scales_for_its_model_is_not_where_a_later_fault_is_found(judge):
    assert judge("Scaled", VECTORS).verdict == "match"
    result = judge("Scaled", VECTORS, shift=0.1)
    assert result.first_divergence.name != "scaled" and "scaled" not in [where for _, where in causes(result)]
    assert "scaled" in result.matched.torch_alone


@pytest.mark.slow
def test_what_is_given_under_several_names_is_one_tensor(judge):
    """The second norm's input is wrong; the sum that the block returns is of the same tensors as in torch."""
    result = judge("Blocks", SEQUENCES, both={"gelu": False}, fault="input")
    assert causes(result) == [("module.wiring", "second")]
    assert result.causes[0].keras == ["activation/first"]


@pytest.mark.slow
def test_channels_and_elements_that_are_dropped(judge):
    result = judge("Decoder", VECTORS, SGD, fault="elements")
    assert causes(result) == [("dropout.shape", "drop")]
    masks = [f"mask 1 of the step for {n} elements" for n in (8 * 16, 8 * 16 * 9)]
    assert [result.causes[0].torch, result.causes[0].keras] == masks


@pytest.mark.slow
def test_nothing_hides_behind_seeds_that_repeat(judge):
    assert causes(judge("Dropouts", VECTORS, SGD, fault="seeds")) == [("dropout.seed", "second")]
    accepted = '[[expect]]\ncause = "dropout.seed"\nwhere = "second"\nreason = "they may repeat"\n'
    result = judge("Dropouts", VECTORS, SGD + accepted, fault="seeds")
    assert result.verdict == "match" and [cause.id for cause in result.expected] == ["dropout.seed"]
    result = judge("Dropouts", VECTORS, SGD, fault="seeds, clipped")
    assert causes(result) == [("dropouts.fault", "(model)"), ("dropout.seed", "second")]


@pytest.mark.slow
def test_a_dropout_too_many_is_told_by_the_masks_of_the_others(judge):
    assert judge("Dropouts", VECTORS, SGD).verdict == "match"
    result = judge("Dropouts", VECTORS, SGD, fault="extra")
    assert causes(result) == [("dropout.order", "first"), ("dropout.order", "second")]
    sides = [(cause.torch, cause.keras) for cause in result.causes]
    assert sides == [tuple(f"mask {n} of the step for 512 elements" for n in each) for each in ((1, 2), (2, 3))]
