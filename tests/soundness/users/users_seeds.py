"""Rows: seeds that make masks repeat, and seeds that do not. The truth is which masks are equal, not their values."""

from typing import Any, Literal

from users_rows import Row, floats

Truth = Literal["same", "differs"]
X = {"x": floats(8, 8)}
COUNT = {"ignore": {"keras": ["steps"]}}
TRAIN = {"learning_rate": 0.25, "steps": 3}


def _row(name: str, truth: Truth, why: str, torch: str, keras: str, train: Any = TRAIN, **rest: Any) -> Row:
    return Row(f"seeds_{name}", "seeds", truth, why, X, torch, keras, train, masks=True, **rest)


SEEDS = [
    _row("none", "same", "two dropouts", "two", "two"),
    _row("one", "same", "a dropout with a seed draws another mask in every step", "one", "seeded"),
    _row("same", "differs", "two dropouts of one seed draw the same masks", "two", "same_seed"),
    _row("own", "same", "two dropouts with a seed each", "two", "own_seeds"),
    _row("same_two_rates", "differs", "the masks of one seed lie within each other", "two_rates",
        "same_seed_two_rates"),
    _row("own_two_rates", "same", "two rates with a seed each", "two_rates", "own_seeds_two_rates"),
    _row("set_before", "same", "the builder sets the seed", "two", "set_before"),
    _row("set_before_each", "differs", "the builder sets the seed before each layer", "two", "set_before_each"),
    _row("copied", "same", "a copy of a layer draws a seed of its own", "two", "copied"),
    _row("copied_seeded", "differs", "a copy of a layer has its seed", "two", "copied", keras_kwargs={"seed": 7}),
    _row("from_config", "same", "a layer of another's config draws a seed of its own", "two", "from_config"),
    _row("from_config_seeded", "differs", "a layer of another's config has its seed", "two", "from_config_seeded"),
    _row("twice", "same", "one layer, called twice", "twice", "twice"),
    _row("twice_seeded", "same", "one layer with a seed, called twice", "twice", "twice_seeded"),
    _row("function", "same", "keras.random.dropout without a seed", "one", "function"),
    _row("functions", "same", "twice without a seed", "two", "functions"),
    _row("number", "differs", "a seed that is a number: the same mask in every step", "one", "function_of_number"),
    _row("numbers", "differs", "two numbers: the same masks in every step", "two", "functions_of_numbers"),
    _row("number_twice", "differs", "one number twice: one mask", "two", "functions_of_number"),
    _row("function_generator", "same", "a generator goes on", "one", "function_of_generator"),
    _row("functions_generator", "same", "one generator for two functions", "two", "functions_of_generator"),
    _row("functions_generators", "same", "a generator each", "two", "functions_of_generators"),
    _row("functions_equal", "differs", "two generators of one seed", "two", "functions_of_equal_generators"),
    _row("tensorflow", "same", "tf.nn.dropout without seeds", "two", "tensorflow"),
    _row("tensorflow_one", "same", "an op with a seed goes on from step to step", "one", "tensorflow_seeded"),
    _row("tensorflow_same", "differs", "two ops of one seed in a graph draw the same", "two", "tensorflow_same_seed"),
    _row("tensorflow_own", "same", "two ops with a seed each", "two", "tensorflow_own_seeds"),
    _row("stateless", "differs", "a stateless dropout draws the same in every step", "one", "Stateless", fields=COUNT),
    _row("stateless_counted", "same", "a stateless dropout whose seed counts", "one", "Stateless",
        keras_kwargs={"counted": True}, fields=COUNT),
    _row("reseeded", "same", "Keras's call sets a seed that its layers do not ask", "two", "reseeded"),
    _row("reseeded_there", "differs", "torch's forward sets the seed: the same masks in every step", "reseeded", "two"),
    _row("forked", "differs", "torch's second dropout begins where the first began", "forked", "two"),
    _row("forked_both", "same", "one mask for both dropouts, another in every step", "forked", "same_seed"),
    _row("forked_seed", "differs", "torch forks with a seed: the same masks in every step", "forked_seed", "two"),
    _row("always", "same", "both drop in evaluation as well", "Always", "always"),
    _row("always_there", "differs", "functional.dropout drops in evaluation as well", "Always", "one"),
    _row("always_number", "differs", "Keras drops the same in evaluation and in every step", "Always",
        "AlwaysOfNumber"),
    _row("rate", "differs", "the rate is the share that is kept", "light", "heavy"),
    _row("annealed", "differs", "the graph that fit traces keeps one rate", "annealed", "annealed"),
    _row("annealed_eagerly", "same", "run_eagerly lowers the rate after every step", "annealed", "annealed",
        keras_kwargs={"is_eager": True}),
    _row("samples", "same", "three maskings for one head", "Samples", "Samples"),
    _row("samples_same", "differs", "three maskings of one seed are one", "Samples", "Samples",
        keras_kwargs={"seed": 7}),
    _row("called_always", "same", "plain calls drop on both sides", "Always", "always", train={}),
    _row("called_always_seeded", "same", "plain calls drop, with a seed that goes on", "Always", "always_seeded",
        train={}),
    _row("called_number", "differs", "plain calls drop, in Keras always the same", "Always", "AlwaysOfNumber",
        train={}),
    _row("called_there", "differs", "plain calls drop in torch alone", "Always", "one", train={}),
]  # fmt: skip
