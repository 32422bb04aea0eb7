"""The table of models and strategies, with a coloured and marked cell for each case."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from parity.config import strategies as strategy_names
from parity.results import CaseResult

PAIR = "pair/"


class Entry(NamedTuple):
    """A case in the table.

    Attributes:
        number: that of its section.
        name: the case's.
        variant: what follows the strategy in its name, "" if nothing does.
        verdict: the case's.
        alone: the side that was compared with itself alone, or "".
    """

    number: int
    name: str
    variant: str
    verdict: str
    alone: str = ""


class Matrix(NamedTuple):
    """The built-in cases by model and strategy, and all others in a list."""

    strategies: list[str]
    models: dict[str, dict[str, list[Entry]]]
    others: list[Entry]


def matrix(cases: Sequence[CaseResult]) -> Matrix:
    """Return the table of cases, in the order of the report."""
    strategies: dict[str, None] = {}
    models: dict[str, dict[str, list[Entry]]] = {}
    others = []
    for number, case in enumerate(cases, start=1):
        model, _, rest = case.case.partition("/")
        strategy, _, variant = rest.partition("@")
        if not strategy or case.case.startswith(PAIR) or " " in rest:
            others.append(Entry(number, case.case, case.case.removeprefix(PAIR), case.verdict))
            continue
        strategies[strategy] = None
        entry = Entry(number, case.case, variant, case.verdict, case.alone)
        models.setdefault(model, {}).setdefault(strategy, []).append(entry)
    known = get_args(strategy_names.Name)
    order = sorted(strategies, key=lambda name: known.index(name) if name in known else len(known))
    return Matrix(order, models, others)
