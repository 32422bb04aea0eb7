"""Ops of a torch call that can be done in another way: each way computes what TensorFlow's would."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional

from parity.diagnose.experiment.knobs import Knob
from torch_impl.experiment.operations import operations

X = torch.linspace(-2.0, 3.0, 2 * 3 * 8 * 8, dtype=torch.float64).reshape(2, 3, 8, 8).sin()
FLAT, PAIR, WAVE = X.flatten(2), X[:, :2], X.sinh()
KERNEL = torch.linspace(-1.0, 1.0, 4 * 3 * 3 * 3, dtype=torch.float64).reshape(4, 3, 3, 3)
BIAS = torch.arange(4.0, dtype=torch.float64)
ONES = torch.ones(1, 1, 8, dtype=torch.float64)
LOGITS, LABELS = X[0, 0], torch.arange(8) % 4
SQUARE, OTHERS = LOGITS[:4, :4], (LABELS + 1) % 4
TARGET = LOGITS.gt(LOGITS.mean()).double()
ALL, MASK = LOGITS[:4, :4].gt(0), torch.tensor([True, False, True, True])
PLACES = torch.arange(4)
LOSSES, CHOSEN = torch.arange(12.0).reshape(4, 3), torch.tensor([True, False, True, False])
EACH = functional.cross_entropy(LOGITS, LABELS, reduction="none")
MATRIX, PART, VECTOR = KERNEL[0, 0], X[0, 0, :3, :2], torch.arange(2.0, dtype=torch.float64)
A, B, C = X.unbind(1)
QUERY, KEY, VALUE = X[..., :4], X[:, :1].sin(), X[:, :1, :, :6]
SCORES = torch.einsum("bhqd,bkd->bhqk", QUERY, KEY[:, 0, :, :4]) / 2
ADDED = torch.linspace(-1.0, 1.0, 64, dtype=torch.float64).reshape(8, 8)
HIDING = torch.full((8, 8), -1e9, dtype=torch.float64).triu(1)

Call = Callable[[], torch.Tensor]


def every(call: Call, is_paused: bool = False) -> list[Knob]:
    return operations(call, lambda: "place", lambda: is_paused)


def found(call: Call, is_paused: bool = False) -> list[Knob]:
    return [knob for knob in every(call, is_paused) if knob.of not in ("halves", "repeat", "layers")]


def under(call: Call, knob: Knob, text: str) -> torch.Tensor:
    with knob.changed(text):
        return call()


def attended(**options) -> Call:
    return partial(functional.scaled_dot_product_attention, QUERY, KEY[..., :4], VALUE, **options, enable_gqa=True)


def gated(scale: torch.Tensor, shift: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return (1 + scale) * gate + shift


def relu_twice() -> torch.Tensor:
    first = X.relu()
    return (0.5 - first).relu()


def turned(x: torch.Tensor = X) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def turned_by_slices(x: torch.Tensor = X) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def turned_in_turn(x: torch.Tensor = X) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def weighed(**weights: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(LOGITS, TARGET, **weights)


def largest_first() -> torch.Tensor:
    return LOGITS.topk(2)[0].softmax(-1)


def softmax_first() -> torch.Tensor:
    return LOGITS.softmax(-1).topk(2)[0]


def curved(name: str, end: float = 0.25) -> torch.Tensor:
    return getattr(functional, name)(LOGITS, LOGITS.flip(0), **{"beta" if "l1" in name else "delta": end})


def filled(where: torch.Tensor) -> torch.Tensor:
    return SQUARE.masked_fill(where, 0.0)


def selected(where: torch.Tensor) -> torch.Tensor:
    return torch.where(where, SQUARE, -1.0)


class Op(NamedTuple):
    """A call, what of it can be another (kind and present value), and what it returns in other ways.

    A way is told by its text, with a number where several of what can be another have it.
    """

    call: Call
    settings: str
    ways: dict[str | tuple[str, int], torch.Tensor]


OPS = {
    "an average at the edge": Op(lambda: functional.avg_pool1d(ONES, 3, 2, 1),
        "average_pool1d.padding: 1; code.function: avg_pool1d", {"same": ONES[..., :4]}),
    "a padding": Op(lambda: functional.pad(X, (1, 1, 1, 1), value=0.5), "zero_padding.padding: 1",
        {"(0, 1)": functional.pad(X, (0, 1, 0, 1), value=0.5), "(2, 0)": functional.pad(X, (2, 0, 2, 0), value=0.5)}),
    "a padding of one axis": Op(lambda: functional.pad(X, (2, 0, 0, 0)), "zero_padding.padding: 0, (2, 0)",
        {"0, 1": functional.pad(X, (1, 1))}),
    "a reshape": Op(lambda: FLAT.reshape(2, 3, 4, 16), "reshape.order: reshape",
        {"axes 1 and 2 exchanged after it": FLAT.reshape(2, 4, 3, 16).transpose(1, 2)}),
    "a concatenation": Op(lambda: torch.cat([X.amax(1), X.mean(1)], dim=-1), "concatenation.order: as they are",
        {"parts 0 and 1 exchanged": torch.cat([X.mean(1), X.amax(1)], dim=-1)}),
    "parts": Op(lambda: gated(*X.unbind(1)), "split.order: as they are; module.sum: *; module.sum: +",
        {"parts 0 and 2 exchanged": gated(C, B, A), "parts 1, 2, 0": gated(B, C, A)}),
    "functions": Op(lambda: functional.relu(X).exp(), "code.function: relu; code.function: exp",
        {"left out": X.exp(), ("left out", 1): X.relu()}),
    "one function twice": Op(relu_twice,
        "code.function: relu; code.function: __rsub__; code.function: relu; code.function: relu",
        {"left out": (0.5 - X).relu(), ("left out", 2): 0.5 - X.relu(), ("left out", 3): 0.5 - X}),
    "a sum with a broadcast": Op(lambda: X + WAVE[:1], "module.sum: +", {"the second alone": WAVE[:1].expand(X.shape)}),
    "a sum": Op(lambda: X + WAVE, "module.sum: +", {"the first alone": X, "the second alone": WAVE}),
    "functions that keep the shape": Op(lambda: X.cumsum(1).square().sum(1),
        "code.function: cumsum; layer_norm.rms: kept; code.function: square",
        {"left out": X.square().sum(1), "`cumsum` behind `square`": X.square().cumsum(1).sum(1),
            "`square` behind `sum`": X.cumsum(1).sum(1).square()}),
    "a transpose": Op(lambda: X.permute(0, 2, 3, 1), "reshape.order: transpose",
        {"axes 1 and 2 exchanged after it": X.permute(0, 3, 2, 1), "reshape": X.reshape(2, 8, 8, 3)}),
    "attention": Op(attended(is_causal=True), "code.function: softmax", {"left out": SCORES @ VALUE}),
    "attention with a bias": Op(attended(attn_mask=ADDED), "code.function: softmax",
        {"left out": (SCORES + ADDED) @ VALUE}),
    "attention with what hides": Op(attended(attn_mask=HIDING), "code.function: softmax", {"left out": SCORES @ VALUE}),
    "attention with a mask": Op(attended(attn_mask=ADDED > 0), "code.function: softmax", {"left out": SCORES @ VALUE}),
    "attention with a scale": Op(attended(scale=1.0), "code.function: softmax", {"left out": 2 * SCORES @ VALUE}),
    "a gate": Op(lambda: functional.glu(PAIR, 1), "split.order: as they are",
        {"parts 0 and 1 exchanged": PAIR[:, 1:] * PAIR[:, :1].sigmoid()}),
    "a roll": Op(lambda: torch.roll(X, (1, -2), (2, 3)), "roll.direction: as it is; code.function: roll",
        {"the other way": torch.roll(X, (-1, 2), (2, 3))}),
    "halves": Op(turned, "split.order: as they are; code.function: neg; concatenation.order: as they are",
        {("in turn", -1): turned_in_turn()}),
    "halves by slices": Op(turned_by_slices, "code.function: neg; concatenation.order: as they are",
        {("in turn", -1): turned_in_turn()}),
    "halves in turn": Op(turned_in_turn, "code.function: neg; concatenation.order: as they are; reshape.order: reshape",
        {("one behind the other", -1): turned()}),
    "each element repeated": Op(lambda: X.repeat_interleave(2, dim=1), "", {"all elements": X.repeat(1, 2, 1, 1)}),
    "all elements repeated": Op(lambda: X.repeat(1, 2, 1, 1), "", {"each element": X.repeat_interleave(2, dim=1)}),
    "a loss": Op(lambda: functional.cross_entropy(LOGITS, LABELS, ignore_index=0),
        "loss.normalisation: over those that are not ignored; cross_entropy.ignored: 0",
        {"over all": EACH[LABELS != 0].sum() / 8, "none": EACH.mean()}),
    "a loss with a weight": Op(lambda: weighed(pos_weight=torch.tensor(3.0)),
        "loss.class_weight: of class 1; loss.normalisation: over 64",
        {"of class 0": weighed(weight=1 + 2 * (1 - TARGET)), "left out": weighed()}),
    "a square matrix by T": Op(lambda: LOGITS.T, "reshape.order: transpose", {"left out": LOGITS}),
    "a square matrix by t": Op(lambda: LOGITS.t(), "reshape.order: transpose", {"left out": LOGITS}),
    "a square matrix": Op(lambda: LOGITS.transpose(0, 1), "reshape.order: transpose", {"left out": LOGITS}),
    "a sum of products": Op(lambda: torch.einsum("bchw,hk,w->bck", X, LOGITS, BIAS.repeat(2)), "module.sum: einsum",
        {"without operand 3": torch.einsum("bchw,hk->bck", X, LOGITS)}),
    "normalised": Op(lambda: functional.normalize(LOGITS), "normalize.axis: axis 1; code.function: normalize",
        {"axis 0": functional.normalize(LOGITS, dim=0)}),
    "normalised with a norm": Op(lambda: functional.normalize(LOGITS, 2.0),
        "normalize.axis: axis 1; code.function: normalize", {"axis 0": functional.normalize(LOGITS, dim=0)}),
    "normalised along an axis": Op(lambda: functional.normalize(LOGITS, 2.0, -1),
        "normalize.axis: axis 1; code.function: normalize", {"axis 0": functional.normalize(LOGITS, dim=0)}),
    "the largest, then a softmax": Op(largest_first, "top_k.normalisation: over the chosen; code.function: softmax",
        {"over all": softmax_first()}),
    "a softmax, then the largest": Op(softmax_first, "code.function: softmax; top_k.normalisation: over all",
        {"over the chosen": largest_first()}),
    "two indices": Op(lambda: SQUARE[LABELS, OTHERS], "gather.order: as they are",
        {"indices exchanged": LOGITS[OTHERS, LABELS]}),
    "a loss by its slope": Op(lambda: curved("smooth_l1_loss"),
        "code.function: flip; smooth_l1_loss.form: smooth_l1_loss; loss.normalisation: over 64",
        {"huber_loss": curved("huber_loss")}),
    "a loss by its square": Op(lambda: curved("huber_loss"),
        "code.function: flip; smooth_l1_loss.form: huber_loss; loss.normalisation: over 64",
        {"smooth_l1_loss": curved("smooth_l1_loss")}),
    "a mask that fills": Op(lambda: filled(MASK[None]), "mask.axis: as it is; code.function: masked_fill",
        {"along the other axis": filled(MASK[:, None])}),
    "a mask that chooses": Op(lambda: selected(MASK[None]), "mask.axis: as it is; module.sum: where",
        {"along the other axis": selected(MASK[:, None])}),
    "a choice": Op(lambda: torch.where(X > 0.5, X, -X), "mask.missing: >; code.function: neg; module.sum: where",
        {"the first alone": X, "the second alone": -X, "the two exchanged": -X.where(X > 0.5, -X)}),
    "a choice's own method": Op(lambda: X.where(X > 0.5, -X), "mask.missing: >; code.function: neg; module.sum: where",
        {"the first alone": X, "the second alone": -X, "the two exchanged": -X.where(X > 0.5, -X)}),
    "a difference": Op(partial(torch.sub, LOGITS, LOGITS.flip(0)), "module.sum: -",
        {"the two exchanged": LOGITS.flip(0) - LOGITS}),
    "a difference of two axes": Op(partial(torch.sub, PLACES[None], PLACES[:, None]), "module.sum: -",
        {"the two exchanged": PLACES[:, None] - PLACES[None]}),
    "a matrix": Op(lambda: MATRIX @ PART + VECTOR, "", {"`matmul` behind `add`": MATRIX @ (PART + VECTOR)}),
    "masks": Op(lambda: (X > 0) & (X < 0.5), "mask.missing: >; mask.missing: <; module.sum: &",
        {"left out": X < 0.5, "the first alone": X > 0}),
    "an average": Op(lambda: LOSSES[CHOSEN].mean(), "mask.missing: what it chooses; loss.normalisation: over 6",
        {"over 4": LOSSES[CHOSEN].sum() / 4, "left out": LOSSES.mean()}),
    "a mean of squares": Op(lambda: LOGITS.pow(2).mean(-1), "layer_norm.rms: kept",
        {"subtracted": LOGITS.var(-1, unbiased=False)}),
    "a sum over a count": Op(lambda: LOSSES.sum() / len(LOSSES), "loss.normalisation: over 4",
        {"over 12": LOSSES.mean()}),
    "a sum over those that a mask chooses": Op(lambda: (LOSSES[:, 0] * CHOSEN).sum() / CHOSEN.sum().clamp(min=1),
        "module.sum: *; code.function: clamp; loss.normalisation: over 2", {"over 4": (LOSSES[:, 0] * CHOSEN).mean()}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_an_op_in_other_ways(name: str) -> None:
    call, settings, ways = OPS[name]
    usual, knobs = call(), every(call)
    assert "; ".join(f"{knob.of}.{knob.name}: {knob.value}" for knob in found(call)) == settings
    for way, expected in ways.items():
        text, number = way if isinstance(way, tuple) else (way, 0)
        knob = [each for each in knobs if text in each.words][number]
        torch.testing.assert_close(under(call, knob, text), expected, rtol=1e-12, atol=1e-12)
        assert not torch.equal(usual, expected) and torch.equal(call(), usual)  # put back


# Of each a call, and the kinds that are not among what of it can be another; "" for any.
NONE = {
    "a padding by reflection": (lambda: functional.pad(X, (1, 1, 1, 1), mode="reflect"), ""),
    "a sum with fewer axes": (lambda: X + 2.0 * X[0], "module"),  # they are no summand that can stand alone
    "a padding by a word": (lambda: functional.conv2d(X, KERNEL, padding="same"), ""),
    "a slice": (lambda: X[0, 0].sum(), ""),
    "a loss that ignores none": (lambda: functional.cross_entropy(LOGITS, LABELS, ignore_index=7), ""),
    "equal parts": (lambda: torch.cat(tensors=[X, X]), ""),
    "an order that does not matter": (lambda: (2 * X[0, 0]).detach().sum(0).sum(), "layers"),
    "parts of several shapes": (lambda: X.split([1, 2], 1)[0], "split"),
    "parts by name": (lambda: torch.chunk(input=X, chunks=2, dim=-1)[0], "halves"),
    "less than half": (lambda: X[..., :3] + X[..., 1:4].sum(), "halves"),
    "another axis": (lambda: X[..., None] + X[..., 1:4].sum(), "halves"),
    "one of a batch": (lambda: X[0] + X[..., 1:4].sum(), "halves"),
    "a channel": (lambda: X[:, :1] + X[..., 1:4].sum(), "halves"),
    "the largest alone": (lambda: LOGITS.topk(2)[0], "top_k"),
    "one index": (lambda: LOGITS.repeat(1, 2)[LABELS, 0], "gather"),
    "an index behind a slice": (lambda: LOGITS.repeat(1, 2)[:, OTHERS], "gather"),
    "a mask as index": (lambda: LOGITS.repeat(1, 2)[LABELS > 1], "gather"),
    "a slope of 1": (lambda: curved("smooth_l1_loss", 1.0), "smooth_l1_loss"),
    "a square up to 1": (lambda: curved("huber_loss", 1.0), "smooth_l1_loss"),
    **{f"a mask of {at} that fills": (partial(filled, mask), "mask") for at, mask in (("an axis", MASK), ("all", ALL))},
    **{
        f"a mask of {at} that chooses": (partial(selected, mask), "mask")
        for at, mask in (("an axis", MASK), ("all", ALL))
    },
}


@pytest.mark.parametrize("name", NONE)
def test_what_has_no_other_way_is_left(name: str) -> None:
    call, kind = NONE[name]
    assert [knob for knob in every(call) if kind in ("", knob.of)] == []


def convolution() -> torch.Tensor:
    return functional.conv2d(X, KERNEL, BIAS, stride=2, padding=1)


def test_what_is_paused_is_left_out() -> None:
    assert every(convolution, is_paused=True) == []


def test_all_windows_of_a_kind_are_changed_together() -> None:
    def twice() -> torch.Tensor:
        return functional.conv2d(convolution(), KERNEL[:, :1].expand(-1, 4, -1, -1), stride=2, padding=1)

    *single, all_ = found(twice)
    assert len(single) == 2 and all_.owner == "conv2d (2 of them)"
    with single[0].changed("same"), single[1].changed("same"):
        each = twice()
    assert torch.equal(under(twice, all_, "same"), each)
    assert not torch.equal(under(twice, single[0], "same"), each)
