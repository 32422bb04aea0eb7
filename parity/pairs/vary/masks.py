"""Tell whether both sides of a pair draw alike in training mode where their masks cannot be shared."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from parity.pairs.activations.counterparts import drops
from parity.pairs.coverage import Draw
from parity.trace.survey import Survey

DROPOUT = "dropout"


class Unshared(NamedTuple):
    """Why training mode is not compared.

    `alike` says that both sides draw the same, as far as is known.
    """

    reason: str
    alike: bool


def unshared(excluded: dict[str, str], torch: Survey, drawn: Sequence[Draw]) -> Unshared | None:
    """Explain why masks cannot be shared, if a side draws random numbers that shared masks cannot stand for; else None.

    `excluded` says by side what it draws. `torch` is torch's survey, which knows the rates of such modules. `drawn`
    are the shared masks that Keras drew. A side that is not in `excluded` draws nothing but plain dropout.
    """
    if not excluded:
        return None
    reason = "; ".join(f"{side}: {why}" for side, why in excluded.items())
    if len(excluded) == 2:
        return Unshared(reason, alike=True)
    if "keras" in excluded:
        return Unshared(f"{reason}; torch draws nothing of that kind", alike=False)
    rates, shared = _rates(torch), {round(draw.rate, 6) for draw in drawn}
    alike = bool(shared) and rates <= shared and not any(map(_is_other_kind, _dropping(torch)))
    return Unshared(reason if alike else f"{reason}; keras drops at the rates {rates_in_words(drawn)}", alike)


def rates_in_words(draws: Iterable[Draw]) -> str:
    """Return the rates of some masks, in words."""
    return ", ".join(f"{draw.rate:g}" for draw in draws) or "nothing"


def _dropping(survey: Survey) -> list[str]:
    return [module.kind.lower() for module in survey.modules if drops(module)]


def _rates(survey: Survey) -> set[float]:
    """Return what is known of the rates in a model: those of dropouts, and those inside recurrent layers."""
    rates = [module.facts.get("rate") for module in survey.modules if drops(module)]
    rates += [module.facts.get("dropout") for module in survey.modules]
    return {round(rate, 6) for rate in rates if rate}


def _is_other_kind(kind: str) -> bool:
    """Return whether a dropout is of another kind than plain or channel dropout (dropout2d), as AlphaDropout is."""
    return kind.rstrip("123d").endswith(DROPOUT) and not kind.startswith(DROPOUT)
