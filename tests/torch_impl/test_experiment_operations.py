"""Ops of a torch call that can be done in another way: each way computes what TensorFlow's would."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import functional

from parity.diagnose.experiment.knobs import Knob
from torch_impl.experiment.operations import operations

X = torch.linspace(-2.0, 3.0, 2 * 3 * 8 * 8, dtype=torch.float64).reshape(2, 3, 8, 8).sin()
KERNEL = torch.linspace(-1.0, 1.0, 4 * 3 * 3 * 3, dtype=torch.float64).reshape(4, 3, 3, 3)
BIAS = torch.arange(4.0, dtype=torch.float64)

Call = Callable[[], torch.Tensor]


def every(call: Call, is_paused: bool = False) -> list[Knob]:
    return operations(call, lambda: "place", lambda: is_paused)


def found(call: Call, is_paused: bool = False) -> list[Knob]:
    return [knob for knob in every(call, is_paused) if knob.of not in ("halves", "repeat", "layers")]


def under(call: Call, knob: Knob, text: str) -> torch.Tensor:
    with knob.changed(text):
        return call()


def convolution() -> torch.Tensor:
    return functional.conv2d(X, KERNEL, BIAS, stride=2, padding=1)


def test_an_average_at_the_edge_counts_what_is_in_the_image() -> None:
    def pool() -> torch.Tensor:
        return functional.avg_pool1d(torch.ones(1, 1, 8, dtype=torch.float64), 3, 2, 1)

    knob, without = found(pool)
    assert (knob.of, without.of, without.value) == ("average_pool1d", "code", "avg_pool1d")
    assert (pool() < 1.0).any() and (under(pool, knob, "same") == 1.0).all()


def test_an_image_can_be_padded_by_other_widths() -> None:
    def padded() -> torch.Tensor:
        return functional.pad(X, (1, 1, 1, 1), value=0.5)

    (knob,) = found(padded)
    assert (knob.of, knob.value) == ("zero_padding", "1")
    assert torch.equal(under(padded, knob, "(0, 1)"), functional.pad(X, (0, 1, 0, 1), value=0.5))
    assert torch.equal(under(padded, knob, "(2, 0)"), functional.pad(X, (2, 0, 2, 0), value=0.5))
    assert found(lambda: functional.pad(X, (1, 1, 1, 1), mode="reflect")) == []


def test_only_axes_that_are_padded_get_other_widths() -> None:
    def causal() -> torch.Tensor:
        return functional.pad(X, (2, 0, 0, 0))

    (knob,) = found(causal)
    assert knob.value == "0, (2, 0)"
    assert torch.equal(under(causal, knob, "0, 1"), functional.pad(X, (1, 1)))


def test_all_windows_of_a_kind_are_changed_together() -> None:
    def twice() -> torch.Tensor:
        return functional.conv2d(convolution(), KERNEL[:, :1].expand(-1, 4, -1, -1), stride=2, padding=1)

    *single, all_ = found(twice)
    assert len(single) == 2 and all_.owner == "conv2d (2 of them)"
    with single[0].changed("same"), single[1].changed("same"):
        each = twice()
    assert torch.equal(under(twice, all_, "same"), each)
    assert not torch.equal(under(twice, single[0], "same"), each)


def test_a_reshape_can_leave_another_order() -> None:
    def heads() -> torch.Tensor:
        return X.flatten(2).reshape(2, 3, 4, 16)

    _, knob = found(heads)
    expected = X.flatten(2).reshape(2, 4, 3, 16).transpose(1, 2)
    assert torch.equal(under(heads, knob, "axes 1 and 2 exchanged after it"), expected)


def test_parts_can_be_joined_in_another_order() -> None:
    def both() -> torch.Tensor:
        return torch.cat([X.amax(1), X.mean(1)], dim=-1)

    (knob,) = found(both)
    assert (knob.of, knob.name) == ("concatenation", "order") and len(knob.words) == 1
    assert torch.equal(under(both, knob, "parts 0 and 1 exchanged"), torch.cat([X.mean(1), X.amax(1)], dim=-1))


def test_the_parts_of_a_tensor_can_be_taken_in_another_order() -> None:
    def gated() -> torch.Tensor:
        scale, shift, gate = X.unbind(1)
        return (1 + scale) * gate + shift

    a, b, c = X.unbind(1)
    (knob,) = (each for each in found(gated) if each.of == "split")
    assert torch.equal(under(gated, knob, "parts 0 and 2 exchanged"), (1 + c) * a + b)
    assert torch.equal(under(gated, knob, "parts 1, 2, 0"), (1 + b) * a + c)


def test_parts_of_several_shapes_are_not_exchanged() -> None:
    assert [each.of for each in found(lambda: X.split([1, 2], 1)[0]) if each.of == "split"] == []


def test_a_function_can_be_left_out() -> None:
    def act() -> torch.Tensor:
        return functional.relu(X).exp()

    relu, exp = found(act)
    assert (relu.name, relu.of, relu.value) == ("function", "code", "relu")
    assert torch.equal(under(act, relu, "left out"), X.exp())
    assert torch.equal(under(act, exp, "left out"), X.relu())


def test_a_function_can_be_left_out_wherever_it_is_called() -> None:
    def act() -> torch.Tensor:
        first = X.relu()
        return (first - 0.5).relu()

    first, second, both = found(act)
    assert torch.equal(under(act, first, "left out"), (X - 0.5).relu())
    assert torch.equal(under(act, second, "left out"), X.relu() - 0.5)
    assert torch.equal(under(act, both, "left out"), X - 0.5) and both.owner == "relu (2 of them)"


def test_of_a_sum_one_summand_can_be_left_out() -> None:
    def bias() -> torch.Tensor:
        return X + 2.0 * X[0]

    wave = X.sinh()

    def positions() -> torch.Tensor:
        return X + wave[:1]

    def same_shape() -> torch.Tensor:
        return X + wave

    assert found(bias) == []  # what has fewer axes is no summand that can stand alone
    (knob,) = found(positions)
    assert torch.equal(under(positions, knob, "the second alone"), wave[:1].expand(X.shape))
    (knob,) = found(same_shape)
    assert (knob.name, knob.of, knob.value) == ("sum", "module", "+")
    assert torch.equal(under(same_shape, knob, "the first alone"), X)
    assert torch.equal(under(same_shape, knob, "the second alone"), wave)


def test_functions_that_keep_a_shape_can_be_left_out_or_belong_behind_the_next() -> None:
    def sum_of_squares() -> torch.Tensor:
        return X.cumsum(1).square().sum(1)

    cumsum, square = found(sum_of_squares)
    assert torch.equal(under(sum_of_squares, cumsum, "left out"), X.square().sum(1)) and square.value == "square"
    first, second = (knob for knob in every(sum_of_squares) if knob.of == "layers")
    assert torch.equal(under(sum_of_squares, first, "`cumsum` behind `square`"), X.square().cumsum(1).sum(1))
    assert torch.equal(under(sum_of_squares, second, "`square` behind `sum`"), X.cumsum(1).sum(1).square())


def test_functions_whose_order_does_not_matter() -> None:
    assert every(lambda: (2 * X[0, 0]).detach().sum(0).sum()) == []


def test_a_transpose_can_be_a_reshape_or_of_other_axes() -> None:
    def turned() -> torch.Tensor:
        return X.permute(0, 2, 3, 1)

    (knob,) = found(turned)
    assert torch.equal(under(turned, knob, "axes 1 and 2 exchanged after it"), X.permute(0, 3, 2, 1))
    assert torch.equal(under(turned, knob, "reshape"), X.reshape(2, 8, 8, 3))


@pytest.mark.parametrize("call", [lambda: functional.conv2d(X, KERNEL, padding="same"), lambda: X[0, 0].sum()])
def test_what_has_no_other_way_is_left(call: Call) -> None:
    assert found(call) == []


def test_what_is_paused_is_left_out() -> None:
    assert found(convolution, is_paused=True) == []


def test_attention_can_do_without_its_softmax() -> None:
    query, key, value = X[..., :4], X[:, :1].sin(), X[:, :1, :, :6]

    def attended(**options) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key[..., :4], value, **options, enable_gqa=True)

    bias = torch.linspace(-1.0, 1.0, 64, dtype=torch.float64).reshape(8, 8)
    hiding = torch.full((8, 8), -1e9, dtype=torch.float64).triu(1)
    scores = torch.einsum("bhqd,bkd->bhqk", query, key[:, 0, :, :4]) / 2
    for options, expected in (
        ({"is_causal": True}, scores),
        ({"attn_mask": bias}, scores + bias),
        ({"attn_mask": hiding}, scores),
        ({"attn_mask": bias > 0}, scores),
        ({"scale": 1.0}, 2 * scores),
    ):
        call = partial(attended, **options)
        (knob,) = found(call)
        assert (knob.owner, knob.value) == ("scaled_dot_product_attention", "softmax")
        assert torch.allclose(under(call, knob, "left out"), expected @ value)
        assert not torch.allclose(call(), expected @ value)  # put back


def test_the_other_half_can_be_the_gate_and_a_roll_goes_the_other_way() -> None:
    x = X[:, :2]
    (knob,) = found(lambda: functional.glu(x, 1))
    assert (knob.of, knob.name) == ("split", "order")
    assert torch.equal(under(lambda: functional.glu(x, 1), knob, *knob.words), x[:, 1:] * x[:, :1].sigmoid())
    back, _ = found(lambda: torch.roll(X, (1, -2), (2, 3)))
    assert torch.equal(under(lambda: torch.roll(X, (1, -2), (2, 3)), back, *back.words), torch.roll(X, (-1, 2), (2, 3)))


def turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def turned_by_slices(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def turned_in_turn(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


@pytest.mark.parametrize(
    ("turn", "other", "text"),
    [
        (turned, turned_in_turn, "in turn"),
        (turned_by_slices, turned_in_turn, "in turn"),
        (turned_in_turn, turned, "one behind the other"),
    ],
)
def test_halves_can_stand_in_turn(turn: Call, other: Call, text: str) -> None:
    knob = [each for each in every(lambda: turn(X)) if each.of == "halves" and "of them" in each.owner][-1]
    assert torch.equal(under(lambda: turn(X), knob, text), other(X))


def test_other_parts_are_no_halves() -> None:
    for part in (X[..., :3], X[..., None], X[0], X[:, :1]):
        assert not [each for each in every(lambda part=part: part + X[..., 1:4].sum()) if each.of == "halves"]


def test_all_elements_can_be_repeated() -> None:
    (knob,) = [each for each in every(lambda: X.repeat_interleave(2, dim=1)) if each.of == "repeat"]
    assert torch.equal(under(lambda: X.repeat_interleave(2, dim=1), knob, "all elements"), X.repeat(1, 2, 1, 1))
    (knob,) = [each for each in every(lambda: X.repeat(1, 2, 1, 1)) if each.of == "repeat"]
    assert torch.equal(under(lambda: X.repeat(1, 2, 1, 1), knob, "each element"), X.repeat_interleave(2, dim=1))


LOGITS, LABELS = X[0, 0], torch.arange(8) % 4


def test_a_loss_can_be_averaged_over_all() -> None:
    def loss() -> torch.Tensor:
        return functional.cross_entropy(LOGITS, LABELS, ignore_index=0)

    average, ignored = found(loss)
    each = functional.cross_entropy(LOGITS, LABELS, reduction="none")
    assert torch.allclose(under(loss, average, "over all"), each[LABELS != 0].sum() / 8)
    assert torch.allclose(under(loss, ignored, "none"), each.mean())
    assert found(lambda: functional.cross_entropy(LOGITS, LABELS, ignore_index=7)) == []


def test_the_other_class_can_have_the_weight() -> None:
    target = (LOGITS > 0.5).double()

    def loss() -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(LOGITS, target, pos_weight=torch.tensor(3.0))

    (knob,) = [each for each in found(loss) if each.name == "class_weight"]
    weights = 1 + 2 * (1 - target)
    expected = functional.binary_cross_entropy_with_logits(LOGITS, target, weights)
    assert torch.allclose(under(loss, knob, "of class 0"), expected)
    assert torch.allclose(under(loss, knob, "left out"), functional.binary_cross_entropy_with_logits(LOGITS, target))


def test_a_square_matrix_can_stay_as_it_is() -> None:
    for call in (lambda: LOGITS.T, lambda: LOGITS.t(), lambda: LOGITS.transpose(0, 1)):
        (knob,) = [each for each in found(call) if "left out" in each.words]
        assert torch.equal(under(call, knob, "left out"), LOGITS)


def test_parts_that_are_given_by_name() -> None:
    assert found(lambda: torch.cat(tensors=[X, X])) == []
    assert not [each for each in every(lambda: torch.chunk(input=X, chunks=2, dim=-1)[0]) if each.of == "halves"]


def test_an_operand_of_a_sum_of_products_can_be_left_out() -> None:
    def product() -> torch.Tensor:
        return torch.einsum("bchw,hk,w->bck", X, LOGITS, BIAS.repeat(2))

    (knob,) = [each for each in found(product) if each.owner == "einsum"]
    assert torch.allclose(under(product, knob, "without operand 3"), torch.einsum("bchw,hk->bck", X, LOGITS))


def test_vectors_can_be_normalised_along_another_axis() -> None:
    for arguments in ((), (2.0,), (2.0, -1)):
        call = partial(functional.normalize, LOGITS, *arguments)
        (knob,) = [each for each in found(call) if each.of == "normalize"]
        assert knob.value == "axis 1"
        assert torch.equal(under(call, knob, "axis 0"), functional.normalize(LOGITS, dim=0))


def test_the_largest_can_be_normalised_before_they_are_chosen_and_after() -> None:
    def chosen() -> torch.Tensor:
        return LOGITS.topk(2)[0].softmax(-1)

    def of_all() -> torch.Tensor:
        return LOGITS.softmax(-1).topk(2)[0]

    for call, other, text in ((chosen, of_all, "over all"), (of_all, chosen, "over the chosen")):
        (knob,) = [each for each in found(call) if each.of == "top_k"]
        assert torch.allclose(under(call, knob, text), other())
    assert not [each for each in found(lambda: LOGITS.topk(2)[0]) if each.of == "top_k"]


def test_two_indices_can_be_exchanged() -> None:
    first, second = LABELS, (LABELS + 1) % 4
    (knob,) = [each for each in found(lambda: LOGITS[:4, :4][first, second]) if each.of == "gather"]
    assert torch.equal(under(lambda: LOGITS[:4, :4][first, second], knob, "indices exchanged"), LOGITS[second, first])
    for index in ((first, 0), (slice(None), second), (first > 1,)):
        assert not [each for each in found(lambda index=index: LOGITS.repeat(1, 2)[index]) if each.of == "gather"]


@pytest.mark.parametrize(("own", "other"), [("smooth_l1_loss", "huber_loss"), ("huber_loss", "smooth_l1_loss")])
def test_a_loss_can_be_as_large_as_its_slope_or_its_square(own: str, other: str) -> None:
    def loss(name: str = own, end: float = 0.25) -> torch.Tensor:
        return getattr(functional, name)(LOGITS, LOGITS.flip(0), **{"beta" if "l1" in name else "delta": end})

    (knob,) = [each for each in found(loss) if each.name == "form"]
    assert torch.allclose(under(loss, knob, other), loss(other))
    assert not [each for each in found(lambda: loss(end=1.0)) if each.name == "form"]


def test_a_mask_can_lie_along_the_other_axis() -> None:
    square, mask = LOGITS[:4, :4], torch.tensor([True, False, True, True])

    def filled(where: torch.Tensor) -> torch.Tensor:
        return square.masked_fill(where, 0.0)

    def chosen(where: torch.Tensor) -> torch.Tensor:
        return torch.where(where, square, -1.0)

    for call in (filled, chosen):
        (knob,) = [each for each in found(lambda call=call: call(mask[None])) if each.of == "mask"]
        other = under(lambda call=call: call(mask[None]), knob, "along the other axis")
        assert torch.equal(other, call(mask[:, None]))
        for where in (mask, square > 0):
            assert not [each for each in found(lambda call=call, where=where: call(where)) if each.of == "mask"]


def test_a_choice_can_be_left_out() -> None:
    def chosen() -> torch.Tensor:
        return torch.where(X > 0.5, X, -X)

    (knob,) = [each for each in found(chosen) if each.owner == "where"]
    assert torch.equal(under(chosen, knob, "the first alone"), X)
    assert torch.equal(under(chosen, knob, "the second alone"), -X)


def test_a_difference_can_be_taken_the_other_way_round() -> None:
    places = torch.arange(4)
    for first, second in ((LOGITS, LOGITS.flip(0)), (places[None], places[:, None])):
        call = partial(torch.sub, first, second)
        (knob,) = [each for each in found(call) if "the first from the second" in each.words]
        assert torch.equal(under(call, knob, "the first from the second"), -call())


def test_a_matrix_can_be_multiplied_behind_an_addition() -> None:
    matrix, bias = KERNEL[0, 0], torch.arange(2.0, dtype=torch.float64)

    def call() -> torch.Tensor:
        return matrix @ X[0, 0, :3, :2] + bias

    text = "`matmul` behind `add`"
    (knob,) = [each for each in every(call) if text in each.words]
    assert torch.allclose(under(call, knob, text), matrix @ (X[0, 0, :3, :2] + bias))


def test_masks_can_be_taken_alone_or_leave_nothing_out() -> None:
    def call() -> torch.Tensor:
        return (X > 0) & (X < 0.5)

    above, below, both = found(call)
    assert [(each.of, each.value) for each in (above, below, both)] == [("mask", ">"), ("mask", "<"), ("module", "&")]
    assert torch.equal(under(call, above, "left out"), X < 0.5)
    assert torch.equal(under(call, both, "the first alone"), X > 0)


def test_an_average_can_be_one_over_those_that_a_mask_leaves_out_too() -> None:
    losses, mask = torch.arange(12.0).reshape(4, 3), torch.tensor([True, False, True, False])

    def call() -> torch.Tensor:
        return losses[mask].mean()

    (knob,) = [each for each in found(call) if each.name == "normalisation"]
    assert knob.value == "over 6" and torch.equal(under(call, knob, "over 4"), losses[mask].sum() / 4)
