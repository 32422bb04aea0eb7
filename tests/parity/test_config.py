"""The configs: every built-in case resolves, and every mistake is told with its place and the nearest right word."""

import fnmatch
import math
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from parity.config import cases, schema, strategies, weights
from parity.core import precision, random
from parity.core.errors import UsageError

BLOCK = "simple_block/single"
KINDS = {
    "linear_stack": schema.LinearStack,
    "simple_block": schema.SimpleBlock,
    "two_linear": schema.TwoLinear,
    "residual_block": schema.ResidualBlock,
    "transformer": schema.Transformer,
}
ALL = cases.names()


def refused(*overrides: str, name: str = BLOCK) -> str:
    """What is said about overrides of a case that cannot be used."""
    with pytest.raises(UsageError) as error:
        cases.select([name], overrides)
    message = str(error.value)
    assert message.count("\n") == 0
    return message


def chosen(*overrides: str, name: str = BLOCK) -> schema.Case:
    (case,) = cases.select([name], overrides)
    return case


@pytest.mark.parametrize("name", ALL)
def test_every_case_resolves_to_what_its_name_says(name: str) -> None:
    case = cases.resolve(name)
    model, _, rest = name.partition("/")
    assert case.name == name
    assert case.strategy == rest.partition("@")[0]
    assert type(case.model) is KINDS[model]


@pytest.mark.parametrize("name", ALL)
def test_every_case_survives_json(name: str) -> None:
    case = cases.resolve(name, {"seed": 2**63 - 1, "precision": "bfloat16"})
    encoded = msgspec.json.encode(case)
    assert msgspec.json.decode(encoded, type=schema.Case) == case
    assert cases.convert(msgspec.json.decode(encoded)) == case
    assert msgspec.json.decode(encoded, type=schema.Case) != cases.resolve(name)


def test_names_are_unique_and_cover_every_model() -> None:
    assert len(set(ALL)) == len(ALL)
    assert {name.partition("/")[0] for name in ALL} == set(KINDS)
    assert all(f"{model}/single" in ALL for model in KINDS)


def test_variants_differ_from_their_base() -> None:
    for name in ALL:
        base, _, variant = name.partition("@")
        if variant:
            one, other = (msgspec.structs.replace(cases.resolve(each), name="") for each in (name, base))
            assert one != other, name


@pytest.mark.parametrize("pattern", ["*", "transformer/*", "*@adam", "*/single", "simple_block/single@[af]*"])
def test_globs_choose_what_they_match_in_order(pattern: str) -> None:
    expected = [name for name in ALL if fnmatch.fnmatchcase(name, pattern)]
    assert expected
    assert [case.name for case in cases.select([pattern])] == expected


def test_globs_add_up_without_repeats() -> None:
    both = [case.name for case in cases.select(["transformer/single", "linear_stack/*", "linear_stack/single"])]
    assert both == [name for name in ALL if name.startswith("linear_stack/") or name == "transformer/single"]


def test_without_a_glob_the_default_cases_have_every_model_and_every_strategy() -> None:
    chosen, every = cases.select([]), cases.select(["*"])
    assert [case.name for case in chosen] == [name for name in ALL if name in cases.default()]
    assert len(chosen) < len(every) / 2
    assert {type(case.model) for case in chosen} == {type(case.model) for case in every}
    assert {case.strategy for case in chosen} == {case.strategy for case in every}


def test_a_glob_without_a_match_names_the_nearest_case() -> None:
    with pytest.raises(UsageError, match=r"no case matches 'simple_blok/single' \(did you mean 'simple_block/single'"):
        cases.select(["*", "simple_blok/single"])


def test_set_changes_nested_fields_and_nothing_else() -> None:
    case, base = chosen("model.hidden=7", "data.batch = 4", "optimizer.learning_rate=1"), chosen()
    assert (case.model.hidden, case.data.batch, case.optimizer.learning_rate) == (7, 4, 1.0)
    assert (case.model.inputs, case.data.source) == (base.model.inputs, base.data.source)
    assert case.optimizer.momentum == base.optimizer.momentum == 0.9
    assert chosen() == base  # the tables behind the cases stay as they are


@pytest.mark.parametrize(
    ("text", "value"),
    [("data.source=text:a=b.txt", "text:a=b.txt"), ("data.source='x y'", "x y"), ('data.source="1"', "1")],
)
def test_values_are_toml_or_bare_words(text: str, value: str) -> None:
    assert chosen(text).data.source == value


def test_later_changes_win_and_flags_come_last() -> None:
    assert chosen("steps=2", "steps=3").steps == 3
    assert cases.select([BLOCK], ["steps=3"], steps=4, seed=None)[0].steps == 4
    assert cases.select([BLOCK], ["seed=3"], steps=None, seed=0)[0].seed == 0


def test_another_kind_replaces_the_whole_table() -> None:
    assert chosen("optimizer.kind=adam").optimizer == schema.Adam()
    assert chosen("optimizer={kind='adamw', beta1=0.5}").optimizer == schema.AdamW(beta1=0.5)
    assert chosen("model.kind=two_linear").model == schema.TwoLinear()
    assert chosen("optimizer.kind=adam", "optimizer.beta1=0.5").optimizer == schema.Adam(beta1=0.5)


def test_the_same_kind_keeps_the_rest() -> None:
    assert chosen("optimizer.kind=sgd").optimizer == chosen().optimizer != schema.SGD()


def test_naming_the_loss_that_a_case_has_changes_nothing() -> None:
    assert chosen().loss == schema.Loss(target="zeros")
    assert chosen("loss.kind=mse").loss == chosen().loss


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("model.hiden=3", "`$.model`", "hidden"),
        ("stpes=3", "`stpes`", "steps"),
        ("optimizer.lerning_rate=0.1", "`$.optimizer`", "learning_rate"),
        ("data.sauce=x", "`$.data`", "source"),
        ("schedule={evry=1}", "`$.schedule`", "every"),
        ("wait_scale={}", "`wait_scale`", "weight_scale"),
    ],
)
def test_unknown_fields_name_the_nearest(text: str, place: str, hint: str) -> None:
    message = refused(text)
    assert place in message and f"did you mean {hint!r}?" in message and BLOCK in message


def test_an_unknown_field_like_no_other_gets_no_hint() -> None:
    assert "did you mean" not in refused("zzzzzzzz=3")


@pytest.mark.parametrize(
    ("text", "expected", "received", "place"),
    [
        ("model.hidden=3.5", "int", "float", "model.hidden"),
        ("model.hidden=20.0", "int", "float", "model.hidden"),
        ("model.hidden=twenty", "int", "str", "model.hidden"),
        ("model.hidden='20'", "int", "str", "model.hidden"),
        ("optimizer.learning_rate=fast", "float", "str", "optimizer.learning_rate"),
        ("data.source=3", "str", "int", "data.source"),
        ("fit=1", "bool", "int", "fit"),
        ("steps=true", "int", "bool", "steps"),
        ("model=3", "object", "int", "model"),
        ("model.hidden=", "int", "str", "model.hidden"),
    ],
)
def test_wrong_types_are_refused_with_their_place(text: str, expected: str, received: str, place: str) -> None:
    message = refused(text)
    assert f"Expected `{expected}`, got `{received}`" in message and f"`$.{place}`" in message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model.hidden=0", "model.hidden"),
        ("seed=-1", "seed"),
        ("steps=0", "steps"),
        ("optimizer.learning_rate=-0.1", "optimizer.learning_rate"),
        ("optimizer.learning_rate=nan", "optimizer.learning_rate"),
        ("optimizer.momentum=1.0", "optimizer.momentum"),
        ("clip_norm=0", "clip_norm"),
        ("data.scale=0", "data.scale"),
        ("model.kind=foo", "model.kind"),
        ("strategy=foo", "strategy"),
        ("precision=float64", "precision"),
        ("loss.reduction=max", "loss.reduction"),
    ],
)
def test_values_out_of_range_are_refused_with_their_place(text: str, place: str) -> None:
    assert f"`$.{place}`" in refused(text)


@pytest.mark.parametrize("text", ["optimizer.learning_rate=inf", "data.scale=inf", 'weight_scale={"linear1.bias"=nan}'])
def test_what_json_cannot_hold_is_refused(text: str) -> None:
    """The parent hands a case to its children as JSON, which has no infinity and no NaN."""
    refused(text)


@pytest.mark.parametrize("text", ["steps", "=3", "", " =3"])
def test_set_without_a_name_or_a_value_says_what_is_expected(text: str) -> None:
    assert "expected name=value" in refused(text)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.heads=3"], "d_model is 256, which cannot be divided among 3 heads"),
        (["loss.target=zeros"], "works only with mse"),
    ],
)
def test_the_transformer_checks_itself(overrides: list[str], said: str) -> None:
    assert said in refused(*overrides, name="transformer/single")


def test_heads_that_divide_are_taken() -> None:
    assert chosen("model.heads=8", name="transformer/single").model.heads == 8


def test_nesterov_needs_momentum() -> None:
    assert "momentum above 0" in refused("optimizer.nesterov=true", "optimizer.momentum=0.0")
    assert chosen("optimizer.nesterov=true").optimizer.nesterov


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        (BLOCK, ["loss.reduction=sum"], "loss.reduction = 'mean'"),
        (BLOCK, ["data.batch=1"], "but data.batch is only 1"),
        (BLOCK, ["fit=true"], "fit = true cannot accumulate gradients; use accumulate = 1"),
    ],
)
def test_accumulation_where_it_would_be_another_computation(name: str, overrides: list[str], said: str) -> None:
    assert said in refused("accumulate=2", *overrides, name=name)
    assert chosen("accumulate=1", *overrides, name=name).accumulate == 1


DDP_ONLY = ("local_buffers", "workers", "distribute_dataset")
REFUSED: list[tuple[str, list[str], str]] = [
    *[(BLOCK, [f"{option}=true"], f"{option} = true needs the strategy 'ddp'") for option in DDP_ONLY],
    ("simple_block/ddp@dataset", ["loss.reduction=sum"], "only with loss.reduction = 'mean'"),
    ("simple_block/data_parallel@fit", ["loss.reduction=sum"], "only with loss.reduction = 'mean'"),
    (BLOCK, ["strategy=data_parallel", "local_buffers=true"], "otherwise set local_buffers = false"),
    *[
        (
            BLOCK,
            [f"strategy={strategy}", "fit=true"],
            f"needs the strategy 'single' or 'data_parallel', received {strategy!r}",
        )
        for strategy in ("ddp", "round_robin", "all_reduce", "hybrid")
    ],
    *[
        (BLOCK, [f"strategy={strategy}", "clip_norm=1.0"], f"on one device, but {strategy!r} spreads them")
        for strategy in ("send_recv", "pipeline", "hybrid", "tensor_parallel")
    ],
    *[
        (
            f"{name}/single",
            ["strategy=branch_parallel"],
            f"the strategy 'branch_parallel' cannot split the model {KINDS[name].__name__}",
        )
        for name in ("linear_stack", "simple_block", "two_linear")
    ],
    *[
        (
            f"{name}/single",
            ["strategy=tensor_parallel"],
            f"the strategy 'tensor_parallel' cannot split the model {KINDS[name].__name__}",
        )
        for name in ("linear_stack", "two_linear", "residual_block")
    ],
    (BLOCK, ['model={kind="specimen"}', "strategy=ddp"], "with the strategy 'single', received 'ddp'"),
    (BLOCK, ["stage_blocks=[2,1]"], "stage_blocks = [2, 1] needs the strategy 'send_recv', 'pipeline' or 'hybrid'"),
    (BLOCK, ["stage_blocks=[2,1]"], "otherwise set stage_blocks = []"),
    (BLOCK, ["strategy=send_recv", "stage_blocks=[3,0]"], "`$.stage_blocks[1]`"),
    (BLOCK, ["devices=0"], "`$.devices`"),
    (BLOCK, ["devices=2.0"], "`$.devices`"),
    (BLOCK, ["strategy=pipeline", "pipeline=zigzag"], "`$.pipeline`"),
    (BLOCK, ["strategy=ddp", "accumulate=2", "loss.reduction=sum"], "loss.reduction = 'mean'"),
    *[
        (
            BLOCK,
            [f"strategy={strategy}", "accumulate=2", *more],
            f"'branch_parallel', 'tensor_parallel' or 'fsdp', received {strategy!r}; otherwise set accumulate = 1",
        )
        for strategy, more in (("data_parallel", []), ("data_parallel", ["fit=true"]), ("all_reduce", []))
    ],
    *[
        (
            "transformer/single",
            [f"strategy={strategy}", "pipeline=1f1b"],
            f"pipeline = '1f1b' needs the strategy 'pipeline', received {strategy!r}",
        )
        for strategy in get_args(strategies.Name)
        if strategy != "pipeline"
    ],
]


@pytest.mark.parametrize(("name", "overrides", "said"), REFUSED)
def test_options_that_a_strategy_does_not_have_are_refused(name: str, overrides: list[str], said: str) -> None:
    assert said in refused(*overrides, name=name)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        *[(BLOCK, ["strategy=ddp", f"{option}=true"]) for option in DDP_ONLY],
        (BLOCK, ["strategy=data_parallel", "fit=true"]),
        (BLOCK, ["strategy=ddp", "clip_norm=1.0"]),
        (BLOCK, ["strategy=round_robin", "clip_norm=1.0"]),
        (BLOCK, ["strategy=pipeline", "pipeline=1f1b"]),
        *[("transformer/single", [f"strategy={name}", "pipeline=gpipe"]) for name in get_args(strategies.Name)],
        *[
            ("transformer/single", [f"strategy={name}", "accumulate=2"])
            for name in get_args(strategies.Name)
            if name not in ("data_parallel", "all_reduce")
        ],
        *[(BLOCK, [f"strategy={name}", "accumulate=1"]) for name in ("data_parallel", "all_reduce")],
        (BLOCK, ["strategy=tensor_parallel"]),
        ("transformer/single", ["strategy=tensor_parallel"]),
        ("transformer/single", ["strategy=branch_parallel"]),
        ("residual_block/single", ["strategy=branch_parallel"]),
        ("residual_block/single", ["strategy=ddp", "accumulate=2"]),
        ("residual_block/single", ["accumulate=2"]),
    ],
)
def test_options_that_a_strategy_has_are_taken(name: str, overrides: list[str]) -> None:
    """The refusals above are of the combination, not of the option."""
    case = chosen(*overrides, name=name)
    for override in overrides:
        field, _, value = override.partition("=")
        assert str(getattr(case, field)).lower() == value


def test_accumulation_up_to_the_batch() -> None:
    assert chosen("accumulate=32").accumulate == 32
    assert "accumulate is 33" in refused("accumulate=33")


def test_weight_scale_takes_the_names_of_weights_only() -> None:
    case = chosen('weight_scale={"linear1.weight"=4.0}')
    scaled, plain = weights.initial(case), weights.initial(chosen())
    assert np.array_equal(scaled["linear1.weight"], 4 * plain["linear1.weight"])
    assert np.array_equal(scaled["linear2.weight"], plain["linear2.weight"])
    assert "did you mean 'linear1.weight'?" in refused('weight_scale={"linear1.wait"=4.0}')


def test_cases_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        chosen().steps = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ALL)
def test_weights_have_unique_names_and_their_shapes(name: str) -> None:
    case = cases.resolve(name)
    specified = list(weights.specify(case.model))
    assert specified
    assert len({weight.name for weight in specified}) == len(specified)
    drawn = weights.initial(case)
    assert {weight.name: weight.shape for weight in specified} == {key: value.shape for key, value in drawn.items()}


def torch_parameters(model: Any) -> int:
    """How many numbers torch.nn.Transformer with an embedding and an output layer holds, by its documentation."""
    d, ff, v = model.d_model, model.feed_forward, model.vocabulary
    attention, norm, feed = 4 * (d * d + d), 2 * d, 2 * d * ff + ff + d
    encoder, decoder = attention + feed + 2 * norm, 2 * attention + feed + 3 * norm
    return v * d + model.encoder_layers * encoder + model.decoder_layers * decoder + 2 * norm + d * v + v


def test_the_transformer_has_as_many_parameters_as_torch_s() -> None:
    model = schema.Transformer(encoder_layers=1, decoder_layers=3)
    assert sum(math.prod(weight.shape) for weight in weights.specify(model)) == torch_parameters(model)


def test_the_shortcut_is_a_convolution_where_channels_differ() -> None:
    names = [weight.name for weight in weights.specify(schema.ResidualBlock(in_channels=3, out_channels=16))]
    same = [weight.name for weight in weights.specify(schema.ResidualBlock(in_channels=3, out_channels=3))]
    assert set(names) - set(same) == {f"shortcut.{i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")}


@pytest.mark.parametrize("at", ["float32", "bfloat16", "float16"])
def test_initial_weights_are_representable_and_the_nudged_ones_an_ulp_away(at: str) -> None:
    case = cases.resolve("residual_block/single", {"precision": at})
    drawn = weights.initial(case)
    nudged = weights.Nudged(drawn, case.seed)
    for name, values in drawn.items():
        assert np.array_equal(random.representable(values, at), values)
        away = np.abs(nudged[name] - values)
        assert (away <= 2 * precision.ROUNDOFF["float64"] * np.abs(values)).all()
        assert ((away > 0) == (values != 0)).all()
    assert drawn["bn1.weight"].tolist() == [1.0] * 16
    assert drawn["bn1.bias"].tolist() == [0.0] * 16


def test_weights_follow_the_seed_and_torch_s_bounds() -> None:
    one, same, other = (weights.initial(cases.resolve(BLOCK, {"seed": seed})) for seed in (1, 1, 2))
    assert np.array_equal(one["linear1.weight"], same["linear1.weight"])
    assert not np.array_equal(one["linear1.weight"], other["linear1.weight"])
    bound = 1 / math.sqrt(10)
    assert 0.95 * bound < np.abs(one["linear1.weight"]).max() <= bound
    assert np.abs(one["linear2.weight"]).max() <= 1 / math.sqrt(20)
