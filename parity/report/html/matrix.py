"""The table of models and strategies, with a coloured and marked cell for each case."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from parity.config import strategies as strategy_names
from parity.results import CaseResult

PAIR = "pair/"


class Entry(NamedTuple):
    """A case in the table: the number of its section, its variant ("" if it has none), and its verdict."""

    number: int
    name: str
    variant: str
    verdict: str


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
        models.setdefault(model, {}).setdefault(strategy, []).append(Entry(number, case.case, variant, case.verdict))
    known = get_args(strategy_names.Name)
    order = sorted(strategies, key=lambda name: known.index(name) if name in known else len(known))
    return Matrix(order, models, others)
