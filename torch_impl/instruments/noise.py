"""Random numbers that both frameworks draw alike: what a user's model draws beside dropout, such as a sampler's noise.

They are made of the bits that a dropout mask of as many elements has at its place, so that `torch.rand(n) < p` and a
dropout of n elements agree. The values are replaced, and nothing else: the program's own generator goes on.

Before it trains, a script draws its own: those of float32 in each run, so that each has the same data.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from numbers import Integral
from typing import Any

import torch

from parity.core.patches import Original, around
from parity.core.random import NORMAL, UNIFORM, gamma

# The numbers of a kind for the elements of a tensor, into which a generator has just drawn.
Source = Callable[[str, torch.Tensor, torch.Generator | None], torch.Tensor]


def patches(source: Source) -> Iterator[AbstractContextManager[Any]]:
    """Yield patches of PyTorch's random functions, which then take their numbers from a source."""
    for name, (kind, values) in FUNCTIONS.items():
        yield around(torch, name, partial(_on_draw, nullcontext, source, kind, values))
    for name, (kind, values) in METHODS.items():  # a mode would be given the patched method, and call that
        yield around(torch.Tensor, name, partial(_on_draw, torch._C.DisableTorchFunction, source, kind, values))
    for name, drawn in GAMMAS.items():
        yield around(torch, name, partial(drawn, source))


def numbers(kind: str, of: torch.Tensor, words: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return a random number for each of some numbered elements, in float64, exact in float32.

    Uniform in (0, 1), or approximately standard normal: the sum of twelve uniform numbers of 16 bits (Irwin-Hall).
    `words` returns 32 random bits for each number.
    """
    if kind == UNIFORM:
        return ((words(of) >> 9).double() + 0.5) * 2.0**-23
    parts = [words(of * 6 + part) for part in range(6)]
    return (sum((each & 0xFFFF) + (each >> 16) for each in parts) + 6 - 6 * 2**16).double() * 2.0**-16


def state(device: torch.device, generator: torch.Generator | None = None) -> bytes:
    """Return the state of PyTorch's generator, and move it on: a program that seeds it again repeats its numbers."""
    default = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
    held = (generator or default).get_state()
    RANDINT(2, (1,), device=device, generator=generator)
    return hashlib.blake2b(held.numpy().tobytes(), digest_size=16).digest()


def _on_draw(
    context: Callable[[], AbstractContextManager[Any]], source: Source, kind: str, values: Callable[..., torch.Tensor],
    draw: Original, *args: Any, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    """Draw within a context; return the values that the source's numbers give, a parameter or no values as drawn."""
    with context():
        drawn = draw(*args, **kwargs)
    if type(drawn) is not torch.Tensor or drawn.is_meta or drawn.is_complex():
        return drawn
    with torch.no_grad(), torch._C.DisableTorchFunction():
        given = {name: each for name, each in kwargs.items() if name in PARAMETERS}
        return drawn.copy_(values(source(kind, drawn, kwargs.get("generator")), *args, **given))


def _on_gamma(source: Source, draw: Original, x: torch.Tensor, generator: Any = None) -> torch.Tensor:
    """Draw as torch.distributions does; a gradient would be that of what was drawn."""
    drawn = draw(x, generator)
    return drawn if x.requires_grad else _gammas(source, drawn, x, generator)


def _on_dirichlet(source: Source, draw: Original, x: torch.Tensor, generator: Any = None) -> torch.Tensor:
    """Draw shares; the two of a beta distribution are made of two draws, as in code without one."""
    drawn = draw(x, generator)
    for part, of in zip(drawn.unbind(-1), x.unbind(-1), strict=True) if x.shape[-1] == 2 else [(drawn, x)]:
        _gammas(source, part, of, generator)
    with torch._C.DisableTorchFunction():
        return drawn.div_(drawn.sum(-1, keepdim=True))


def _gammas(source: Source, drawn: torch.Tensor, x: torch.Tensor, generator: Any) -> torch.Tensor:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        normal, uniform = (source(kind, drawn, generator) for kind in (NORMAL, UNIFORM))
        return drawn.copy_(gamma(x.double(), normal, uniform))


def _normal(of: torch.Tensor, mean: Any = 0.0, std: Any = 1.0, *_: Any) -> torch.Tensor:
    return of * std + mean


def _filled_uniform(of: torch.Tensor, _: torch.Tensor, *limits: float, **named: float) -> torch.Tensor:
    lower, upper = {"from": 0.0, "to": 1.0, **dict(zip(("from", "to"), limits, strict=False)), **named}.values()
    return of * (upper - lower) + lower


def _bernoulli(of: torch.Tensor, x: torch.Tensor, p: Any = None) -> torch.Tensor:
    """Return ones with a probability, by the formula that stochastic depth uses, which keeps what dropout keeps."""
    return torch.floor(of + (x if p is None else p))


def _whole(of: torch.Tensor, *args: Any, low: int = 0, high: int | None = None) -> torch.Tensor:
    limits = [each for each in args if isinstance(each, Integral)] + ([] if high is None else [high])
    lower, upper = limits if len(limits) == 2 else (low, *limits)
    return torch.floor(of * (upper - lower)) + lower


RANDINT = torch.randint
PARAMETERS = ("mean", "std", "from", "to", "lambd", "p", "low", "high")  # what gives values; others are of the tensor
FUNCTIONS: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "rand": (UNIFORM, lambda of, *_: of),
    "rand_like": (UNIFORM, lambda of, *_: of),
    "randn": (NORMAL, lambda of, *_: of),
    "randn_like": (NORMAL, lambda of, *_: of),
    "normal": (NORMAL, _normal),
    "bernoulli": (UNIFORM, _bernoulli),
    "randint": (UNIFORM, _whole),
    "randint_like": (UNIFORM, _whole),
    "randperm": (UNIFORM, lambda of, *_: of.argsort(stable=True)),
}
GAMMAS = {"_standard_gamma": _on_gamma, "_sample_dirichlet": _on_dirichlet}
METHODS = {
    "normal_": (NORMAL, lambda of, _, *args, **kwargs: _normal(of, *args, **kwargs)),
    "uniform_": (UNIFORM, _filled_uniform),
    "exponential_": (UNIFORM, lambda of, _, lambd=1.0: of.log() / -lambd),
    "bernoulli_": (UNIFORM, lambda of, x, p=0.5: _bernoulli(of, x, p)),
    "bernoulli": (UNIFORM, _bernoulli),
}


FACTORIES = ("rand", "randn", "rand_like", "randn_like")
IN_PLACE = ("normal_", "uniform_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_")


def float32_draws() -> Iterator[AbstractContextManager[Any]]:
    """Yield patches by which is drawn in float32, and converted, what a script does not ask for in float64.

    A generator gives float64 other numbers, and more of its state. None where a run is not in float64.
    """
    if torch.get_default_dtype() == torch.float64:
        yield from (around(torch, name, _made) for name in FACTORIES)
        yield from (around(torch.Tensor, name, _filled) for name in IN_PLACE)


def _made(draw: Original, *args: Any, **kwargs: Any) -> torch.Tensor:
    if kwargs.get("dtype") not in (None, torch.float32):
        return draw(*args, **kwargs)
    with torch._C.DisableTorchFunction():  # the mode that promotes would draw in float64
        return draw(*args, **kwargs | {"dtype": torch.float32}).double()


def _filled(draw: Original, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if tensor.dtype != torch.float64:
        return draw(tensor, *args, **kwargs)
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return tensor.copy_(draw(torch.empty_like(tensor, dtype=torch.float32), *args, **kwargs))
