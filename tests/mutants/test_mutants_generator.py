"""Each kind of mutation makes the edit that its name says, where a line is executed, and nowhere else."""

from collections import Counter
from itertools import islice

import pytest
from mutating.campaign import KINDS, drawn, mutations

EDITS = [  # kind, a source, one line of the mutant
    ("number of an argument", "y = Norm(epsilon=1e-5)(x)", "y = Norm(epsilon=(0.0001))(x)"),
    ("number of an argument", "y = Conv(8, strides=(2, 2))(x)", "y = Conv(8, strides=((3), 2))(x)"),
    ("switch", "y = Dense(4, use_bias=False)(x)", "y = Dense(4, use_bias=(True))(x)"),
    ("word", "y = Conv(8, 3, padding='same')(x)", "y = Conv(8, 3, padding='valid')(x)"),
    ("argument left out", "y = Norm(3, epsilon=e)(x)", "y = Norm(3)(x)"),
    ("constant", "y = 0.5 * x", "y = (1.0) * x"),
    ("axis", "y = ops.softmax(x, axis=-1)", "y = ops.softmax(x, axis=(1))"),
    ("axis", "y = ops.transpose(x, (0, 2, 1))", "y = ops.transpose(x, (0, 1, 2))"),
    ("axis", "y = ops.einsum('ab,bc->ac', x, w)", "y = ops.einsum('ab,bc->ca', x, w)"),
    ("operator", "y = x - mean", "y = (x + mean)"),
    ("operator", "y = x < 3", "y = x <= 3"),
    ("order of two calls", "y = norm(dense(x))", "y = dense(norm(x))"),
    ("dropped summand", "y = x + block(x)", "y = block(x)"),
    ("dropped summand", "y = layers.Add()([x, z])", "y = z"),
    ("mask", "y = ops.where(mask, x, low)", "y = ops.where(mask, low, x)"),
    (
        "mask",
        "y = attend(x, attention_mask=m)",
        "y = attend(x, attention_mask=((lambda m: None if m is None else keras.ops.cast("
        'keras.ops.logical_not(keras.ops.cast(m, "bool")), m.dtype))(m)))',
    ),
    ("cast", "y = block(x)", 'y = ((lambda x: keras.ops.cast(keras.ops.cast(x, "float16"), x.dtype))(block(x)))'),
    ("cast", "y = ops.cast(x, dtype='float32')", "y = ops.cast(x, dtype='bfloat16')"),
    ("stopped gradient", "y = block(x)", "y = (keras.ops.stop_gradient(block(x)))"),
    ("dropped activation", "y = ops.relu(x)", "y = x"),
    ("dropped activation", "y = self.activation(x)", "y = x"),
    ("dropped activation", "y = x * ops.rsqrt(v + e)", "y = x * (v + e)"),
    ("reduction", "y = ops.mean(x, -1)", "y = ops.sum(x, -1)"),
]


def found(source: str, lines: range | None = None) -> list:
    executed = lines or range(1, source.count("\n") + 2)
    return list(mutations({"port.py": source}, {"port.py": executed}))


def function(statement: str) -> str:
    return f"def call(self, x):\n    {statement}\n    return y\n"


@pytest.mark.parametrize(("kind", "before", "after"), EDITS)
def test_a_kind_makes_the_edit(kind, before, after):
    of_kind = [each for each in found(function(before)) if each.site.kind == kind]
    made = [each.source() for each in of_kind]
    assert [source for source in made if after in [line.strip() for line in source.splitlines()]], made
    assert all((each.site.first, each.site.last) == (2, 2) for each in of_kind)


def test_every_kind_has_an_example():
    assert {kind for kind, _, _ in EDITS} == set(KINDS)


def test_two_statements_are_exchanged():
    source = "def call(self, x):\n    x = self.norm(x)\n    x = self.dense(x)\n    return x\n"
    (exchanged,) = [each for each in found(source) if each.site.kind == "order of two calls"]
    assert exchanged.source().splitlines()[1:3] == ["    x = self.dense(x)", "    x = self.norm(x)"]


def test_a_default_of_a_function_that_is_executed_is_mutated():
    source = "def norm(x, epsilon=1e-5):\n    return x\n"
    assert [each for each in found(source, range(2, 3)) if each.site.setting == "epsilon"]
    assert not found(source, range(3, 4))


@pytest.mark.parametrize(
    "source",
    [
        "def call(x):\n    return x\n",
        "def get_config(self):\n    return {'epsilon': 1e-5}\n",
        "def call(x):\n    raise ValueError(1 + x)\n",
        "def call(x):\n    y = Dense(name='relu', kernel_initializer='zeros', seed=3)\n",
    ],
)
def test_what_computes_nothing_is_left_alone(source):
    assert [each for each in found(source) if each.site.kind not in ("cast", "stopped gradient")] == []


def test_what_uses_the_assigned_variable_next_is_told():
    source = (
        "def build():\n    sizes = {'width': 4}\n    sizes |= {'depth': 2}\n    x = Model(**sizes)\n    return f(x)\n"
    )
    uses = {each.site.first: each.site.uses for each in found(source) if each.site.kind == "number of an argument"}
    assert uses == {2: [3, 4], 3: [4]}


def test_what_uses_the_result_of_a_function_is_told():
    source = "def mask(x):\n    return x > 0\n\n\ndef call(self, x):\n    m = mask(x)\n    return self.attend(x, m)\n"
    passed = {each.site.first: each.site.passed for each in found(source) if each.site.kind == "operator"}
    assert passed == {2: [7]}


def test_only_what_is_executed_is_mutated():
    source = "def call(x, cache):\n    if cache:\n        x = 2 * x\n    return 3 * x\n"
    assert {each.site.first for each in found(source, range(4, 5))} == {4}


def test_a_mutant_has_what_it_calls_and_its_lines_stay():
    source = function("y = block(x)")
    stopped = next(each.source() for each in found(source) if each.site.kind == "stopped gradient")
    assert stopped.splitlines()[2] == source.splitlines()[2]
    assert stopped.rstrip().endswith("import keras")
    compile(stopped, "mutant", "exec", dont_inherit=True)


def test_a_seed_draws_the_same_mutants_and_each_kind_alike():
    source = function("y = ops.mean(0.5 * x, axis=-1) + Norm(epsilon=1e-5, center=True)(block(x))")
    draws = [[each.source() for each in drawn(iter(found(source)), seed)] for seed in ("7", "7", "8")]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert sorted(draws[0]) == sorted(draws[2])
    kinds = {each.site.kind for each in found(source)}
    first = Counter(each.site.kind for each in islice(drawn(iter(found(source)), "7"), len(kinds)))
    assert set(first.values()) == {1}
