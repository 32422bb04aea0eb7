"""docs/mutants.md: the table of a campaign, and all that was missed or named wrongly."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from mutating.campaign import KINDS

Line = dict[str, Any]
GOALS = {"caught": 99.5, "placed": 97.0, "named": 85.0, "repaired": 60.0}
MOST_FALSE = 2.0  # per cent of the mutants with a false cause
LONGEST = 110  # characters of a side of a mutation

INTRODUCTION = """# Mutants

How many faults that nobody planted by hand are caught and named? The ports of the [public pairs](public.md) are mutated
at random, with one fault in each mutant: another number, switch or word among arguments, an argument left out, another
constant, operator, axis or reduction, two calls in the other order, a dropped summand (such as a residual), an inverted
mask, a cast to a smaller type, a stopped gradient, a missing activation. The pairs are those whose truth is a match, or
a difference that float32 hides. KerasHub's and keras.applications' code is mutated as if it were the user's own.

Only lines that are executed are mutated. A mutant that cannot be built or run is *broken*; one that computes the same
is *equivalent*. Keras alone decides that, without this project's comparison: with the same random weights in float64,
outputs, gradients, losses and the state after a pass of training equal the port's to 1e-12, on several draws of the
inputs, with masks that end early and with other batch sizes and lengths among them. All others are *real*: they are
compared with PyTorch's side as `python -m parity.compare --pair` does (on varied inputs where the given ones show
nothing), and counted by the rules of `benchmarks/mutating/score.py`:

- *caught*: the verdict is not the clean port's (where both are `subprecision`: another place or cause is reported);
- *placed*: the first place is the layer that the mutated line makes, calls next or stands within, the layer (or, in a
  flat model, the model) directly around it, or the attention that gets a mutated mask; or the report names the line;
- *named*: a cause other than `unknown` fits the mutation by the setting's name, a value, the line, the name of what the
  mutated function or class makes, or an id for this kind of mutation (where weights cannot be mapped: the report lists
  a weight of the mutated layers);
- *false cause*: a cause other than `unknown` that does not fit the mutation, and that the clean port does not have;
- *repaired*: `--repair` reaches the clean port's verdict (tried on a sample).

`python benchmarks/mutants.py --seed 16 --count 100 --jobs 2 --lines mutants.jsonl` runs 100 mutants, writes this page
from all lines of the file, and prints every mutant that was missed or named wrongly. The same seed draws the same
mutants; a run that was interrupted goes on where it stopped; `--pairs` chooses pairs.

The figures are the first ones of each seed: no fault of a seed had been mended when they were counted. Each seed was
drawn after the faults of the seeds before it had been mended, so the last seed shows what to expect now. (Five mutants
of seed 16 were run twice: two processes had been killed, three got no answer.) The 43 mutants of seeds 12 to 15 that
were not caught, placed or named, or that had a false cause, were run again on 2026-11-23, and one turned out
equivalent: of these seeds' 291 real mutants all are caught then, 285 placed, 285 named, and 3 have a false cause. The
others were not run again.
"""


def summary(lines: Sequence[Line]) -> str:
    """Return docs/mutants.md."""
    parts = [INTRODUCTION, goals(lines), "", "## By seed", "", *_table(lines, "seed", sorted(_all(lines, "seed")))]
    parts += ["", "## By kind of mutation", "", *_table(lines, "kind", KINDS)]
    return "\n".join([*parts, "", "## Not caught", "", *_listed(lines, lambda line: not line["caught"], _missed), ""])


def page(lines: Sequence[Line]) -> str:
    """Return docs/mutants.md with what is only printed: the table by pair, and all that was misplaced or misnamed."""
    parts = [summary(lines), "## By pair", "", *_table(lines, "pair", sorted(_all(lines, "pair")))]
    parts += ["", "## Named wrongly", "", *_listed(lines, lambda line: bool(line["false"]), _false)]
    parts += ["", "## Not named", "", *_listed(lines, lambda line: line["caught"] and not line["named"], _misplaced)]
    parts += ["", "## Not placed", "", *_listed(lines, lambda line: line["caught"] and not line["placed"], _misplaced)]
    return "\n".join([*parts, ""])


def goals(lines: Sequence[Line]) -> str:
    """Return what was reached beside the goals."""
    real = [line for line in lines if line["status"] == "real"]
    seconds = [line["seconds"] for line in real]
    told = [f"| {name} | {_share(_of(real, name))} | {goal:g}% |" for name, goal in GOALS.items()]
    told.append(f"| with a false cause | {_share([bool(line['false']) for line in real])} | under {MOST_FALSE:g}% |")
    counts = ", ".join(f"{sum(line['status'] == each for line in lines)} {each}" for each in _statuses(lines))
    median = f"Median: {statistics.median(seconds):.0f} s a mutant." if seconds else ""
    head = f"{len(lines)} mutants of {len(_all(lines, 'pair'))} pairs: {counts}. {median}"
    return "\n".join([head, "", "| | reached | goal |", "|---|---|---|", *told])


def _all(lines: Sequence[Line], name: str) -> set[Any]:
    return {line[name] for line in lines}


def _statuses(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(["real", "equivalent", "broken", *sorted({line["status"] for line in lines})]))


def _of(real: Sequence[Line], name: str) -> list[bool]:
    """Return a score of all mutants that have it; of the repaired ones only a sample has it."""
    return [bool(line[name]) for line in real if name in line]


def _share(told: Sequence[bool]) -> str:
    return f"{sum(told)} of {len(told)} ({100 * sum(told) / len(told):.1f}%)" if told else "-"


def _table(lines: Sequence[Line], by: str, names: Sequence[Any]) -> list[str]:
    head = f"| {by} | mutants | equivalent | broken | real | caught | placed | named | false causes | repaired |"
    rows = [(name, [line for line in lines if line.get(by) == name]) for name in names]
    return [head, f"|{'---|' * 10}", *(_row(*row) for row in rows if row[1]), _row("**all**", lines)]


def _row(name: str, lines: Sequence[Line]) -> str:
    real = [line for line in lines if line["status"] == "real"]
    counts = [sum(line["status"] == each for line in lines) for each in ("equivalent", "broken")]
    scores = [sum(_of(real, each)) for each in ("caught", "placed", "named")]
    repaired = _of(real, "repaired")
    cells = [len(lines), *counts, len(real), *scores, sum(bool(line["false"]) for line in real)]
    return f"| {name} | {' | '.join(map(str, cells))} | {f'{sum(repaired)} of {len(repaired)}' if repaired else '-'} |"


def _listed(lines: Sequence[Line], chosen: Callable[[Line], bool], why: Callable[[Line], str]) -> list[str]:
    """Return each chosen mutant as a line: its pair and number, its place, the edit, and why it stands here."""
    found = [line for line in lines if line["status"] == "real" and chosen(line)]
    return [f"- {edit(line)}: {why(line)}" for line in found] or ["(none)"]


def edit(line: Line) -> str:
    """Return a mutation in one line."""
    sides = (_cut(line[each]) for each in ("before", "after"))
    where = f"{line['file'].rpartition('/')[2]}:{line['first']} {line['function']}"
    return f"`{line['pair']}` {line['number']}, {line['kind']} in {where}: " + " -> ".join(
        f"`{each}`" for each in sides
    )


def _cut(text: str) -> str:
    text = text.replace("`", "'")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _missed(line: Line) -> str:
    differences = ", ".join(f"{what} {size:.0e}" for what, size in line["differences"].items())
    return f"`{line['said']['verdict']}`; truly apart in {differences}"


def _false(line: Line) -> str:
    return ", ".join(
        f"`{cause['id']}` at {cause['where']}, torch {cause.get('torch')}, keras {cause.get('keras')}"
        for cause in line["false"][:3]
    )


def _misplaced(line: Line) -> str:
    return f"{line['said']['kind']} {line['said']['place']}" if line["said"]["place"] else _cut(line["said"]["reason"])
