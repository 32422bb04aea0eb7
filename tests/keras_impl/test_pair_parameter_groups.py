"""What is read off the user's optimizer."""

import math

import keras
from keras import optimizers

from keras_impl.record.pair.optimizers import groups, rate

LAYER = keras.layers.Dense(2)
LAYER.build((None, 3))
BY_NAME = {"weight": LAYER.kernel, "bias": LAYER.bias}


def built(optimizer: optimizers.Optimizer) -> optimizers.Optimizer:
    optimizer.build(list(BY_NAME.values()))
    return optimizer


def test_what_decays_is_read():
    optimizer = optimizers.AdamW(0.25, weight_decay=0.125)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    of_weight, of_bias = groups(built(optimizer), BY_NAME)
    assert (of_weight.parameters, of_bias.parameters) == (["weight"], ["bias"])
    assert (of_weight.settings["weight_decay"], of_bias.settings["weight_decay"]) == (0.125, 0.0)
    assert of_weight.settings["epsilon_placement"] == "before the correction" and rate(optimizer) == 0.25


def test_the_rate_of_a_schedule_is_that_of_the_next_step():
    optimizer = built(optimizers.SGD(optimizers.schedules.ExponentialDecay(0.5, 1, 0.5), momentum=0.5))
    (group,) = groups(optimizer, BY_NAME)
    assert (group.settings["learning_rate"], rate(optimizer)) == (0.5, 0.5)
    optimizer.iterations.assign(1)
    assert rate(optimizer) == 0.25


def test_code_of_the_users_is_not_called_for_the_rate():
    calls = []
    optimizer = built(optimizers.SGD(lambda: calls.append(1) or 0.5))
    calls.clear()
    assert rate(optimizer) is None and calls == []


def test_a_derived_class_states_what_its_base_does_and_nothing_is_known_of_another_or_of_an_average():
    class Own(optimizers.SGD):
        pass

    (group,) = groups(built(Own(0.5)), BY_NAME)
    assert (group.settings["kind"], group.settings["learning_rate"]) == ("sgd", 0.5)
    for optimizer in (optimizers.Ftrl(), optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=1)):
        assert groups(built(optimizer), BY_NAME) == []


def test_no_settings_that_json_cannot_hold():
    optimizer = built(optimizers.SGD(math.inf))
    assert groups(optimizer, BY_NAME) == [] and rate(optimizer) is None
