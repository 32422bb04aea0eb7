"""Which scripts have steps that begin with a batch, and what they are given."""

import msgspec
import numpy as np

from parity.core.script import Sources
from parity.pairs.script_records import Called, Fetched
from parity.pairs.script_steps import Steps, steps

RNG = np.random.default_rng(0)
IMAGES, NOISY = RNG.normal(size=(4, 3, 5, 5)), RNG.normal(size=(4, 3, 5, 5))
LABELS, TIMES = RNG.integers(0, 9, 4), RNG.normal(size=(4, 1))
LAST = {"image": IMAGES.transpose(0, 2, 3, 1), "given": NOISY.transpose(0, 2, 3, 1)}
FETCHED = Fetched(
    first=1, modules={"model": 0}, names={"0": "", "1": ""}, returned=[[4, 3]], is_random=True, is_several=False
)
CALLS = [Called(layer=0, args=[{"tensor": 0}, {"tensor": 1}], kwargs={})]
OF_KERAS = Fetched(returned=[[4, 3]], calls=CALLS)
TORCH = {"batch.0": IMAGES, "batch.1": LABELS, "given.time": TIMES, "given.x": NOISY}
KERAS = {"batch.image": LAST["image"], "target": LABELS, "given.0": LAST["given"], "given.1": TIMES}


def found(of_keras: Fetched = OF_KERAS, **keras: np.ndarray) -> Steps | None:
    """What such scripts are given; of Keras's arrays these are others."""
    named = {name.replace("_", "."): array for name, array in keras.items()}
    return steps(FETCHED, {f"{name}@0": each for name, each in TORCH.items()}, of_keras, KERAS | named)


def test_what_both_make_is_given_to_their_models_and_the_batch_to_their_steps():
    given = found()
    assert given and given.are_made
    assert list(given.inputs) == ["x", "time", "target.batch.0", "target"]  # Keras's order
    assert given.fetched.names == {"0": "target.batch.0", "1": "target"}
    assert given.inputs["target.batch.0"].keras_layout == given.inputs["x"].keras_layout == "b a1 a2 a3 -> b a2 a3 a1"
    assert np.array_equal(given.arrays["x@0"], NOISY) and np.array_equal(given.arrays["target.batch.0@0"], IMAGES)
    assert set(given.arrays) == {f"{name}@0" for name in given.inputs}


def test_a_step_of_keras_that_passes_on_its_batch_needs_none():
    """PyTorch's loop then does to its data what Keras's script does before `fit`."""
    several = [msgspec.structs.replace(each, is_several=True) for each in (FETCHED, OF_KERAS)]
    assert not _passing(FETCHED, OF_KERAS) and _passing(several[0], OF_KERAS) and _passing(FETCHED, several[1])


def _passing(fetched: Fetched, of_keras: Fetched) -> bool:
    torch = {"batch.0@0": IMAGES, "given.x@0": NOISY}
    keras = {"batch.image": LAST["image"], "given.0": LAST["image"]}
    given = steps(fetched, torch, of_keras, keras)
    assert given
    return given.are_made


def test_batches_or_calls_that_are_not_alike_are_none():
    assert found(msgspec.structs.replace(OF_KERAS, calls=[])) is None
    assert found(batch_image=LAST["image"][:, :4]) is None
    assert found(given_1=TIMES[:, 0].astype(int)) is None
    assert found(given_2=TIMES[:, :0]) is None
    assert found(target_1=LABELS) is None


def test_a_dataset_that_is_made_anew_where_another_one_was_is_that_one():
    class Data:
        pass

    sources, kept, lines = Sources(), Data(), ("train.py:8", "train.py:9")
    temporary = Data()
    numbers = [sources.number(temporary, lines[0]), sources.number(kept, lines[0]), sources.number(temporary, lines[1])]
    del temporary
    assert [*numbers, sources.number(Data(), lines[1]), sources.number(kept, lines[1])] == [0, 1, 0, 0, 1]
    assert sources.number([1], lines[0]) == 2  # a list, of which nothing tells whether it is gone
