"""Whether both sides of a pair draw alike in training mode, where their masks cannot be shared."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from parity.pairs.activations.counterparts import drops
from parity.pairs.coverage import Draw
from parity.trace.survey import Survey

DROPOUT = "dropout"


class Unshared(NamedTuple):
    """Why training mode is not compared. `alike`: as far as is known both sides draw the same."""

    reason: str
    alike: bool


def unshared(excluded: dict[str, str], torch: Survey, drawn: Sequence[Draw]) -> Unshared | None:
    """Say so where a side draws what shared masks do not serve; None where none does.

    `excluded`: by side, what it draws; `torch`: its survey, which knows the rates of the modules that are not served;
    `drawn`: Keras's shared masks. A side that is served draws nothing but plain dropout.
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
    return Unshared(reason if alike else f"{reason}; keras drops at the rates {told(drawn)}", alike)


def told(draws: Iterable[Draw]) -> str:
    """Return the rates of some draws, in words."""
    return ", ".join(f"{draw.rate:g}" for draw in draws) or "nothing"


def _dropping(survey: Survey) -> list[str]:
    return [module.kind.lower() for module in survey.modules if drops(module)]


def _rates(survey: Survey) -> set[float]:
    """What is known of the rates of a model's modules: those of dropouts, and of recurrent layers with their own."""
    found = [module.facts.get("rate") for module in survey.modules if drops(module)]
    found += [module.facts.get("dropout") for module in survey.modules]
    return {round(rate, 6) for rate in found if rate}


def _is_other_kind(kind: str) -> bool:
    """Whether a dropout, plain or of whole channels (dropout2d), is of another kind, as AlphaDropout is."""
    return kind.rstrip("123d").endswith(DROPOUT) and not kind.startswith(DROPOUT)
