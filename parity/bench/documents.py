"""A benchmark as a page and as Markdown."""

from collections.abc import Iterator

from parity.bench import curves
from parity.bench.report import HEADINGS, LEGEND, names, notes, row, title
from parity.bench.results import Benchmark, Timed
from parity.core.wording import agree, count
from parity.report import markdown
from parity.report.html import page
from parity.report.output import Makers

MARKS = {"match": "✓", "diverged": "✗", "error": "✗"}
TITLE = "Benchmark"


def makers(benchmark: Benchmark) -> Makers:
    """Return what makes each format's text."""
    return {"html": lambda: _page(benchmark), "markdown": lambda: _markdown(benchmark)}


def headline(benchmark: Benchmark) -> str:
    """Return the outcome in one sentence."""
    if benchmark.slower:
        return f"{count(len(benchmark.slower), 'time')} {agree(len(benchmark.slower), 'is')} slower than before."
    if wrong := [timed.case for timed in benchmark.timed if timed.reason]:
        return f"Not timed, because the two sides do not compute the same: {', '.join(dict.fromkeys(wrong))}."
    number, processor = len(benchmark.timed), benchmark.machine.processor
    return f"{count(number, 'training')} {agree(number, 'was')} timed on {processor}."


def _page(benchmark: Benchmark) -> str:
    failed = benchmark.slower or benchmark.error or any(timed.reason for timed in benchmark.timed)
    verdict = "diverged" if failed else "match"
    banner = page.Banner(verdict, MARKS[verdict], benchmark.error or headline(benchmark), benchmark.command)
    found = [(title(each), each.verdict, each.reason, _rows(each), list(notes(each))) for each in benchmark.timed]
    drawn = list(curves.plots(benchmark.timed))
    times = page.part("bench", found=found, headings=HEADINGS, legend=LEGEND, curves=drawn, run=benchmark)
    sections = [
        page.Section("times", "Time of a step", times),
        page.Section("environment", "Environment", page.part("bench_machine", run=benchmark)),
    ]
    return page.render(TITLE, banner, sections, benchmark)


def _rows(timed: Timed) -> list[list[str]]:
    pairs = zip(names(timed.lanes), timed.lanes, strict=True)
    return [[name, *row(lane)] for name, lane in pairs if lane.step]


def _markdown(benchmark: Benchmark) -> str:
    return markdown.document(headline(benchmark), list(_tables(benchmark)), map(markdown.escaped, benchmark.slower))


def _tables(benchmark: Benchmark) -> Iterator[str]:
    for timed in benchmark.timed:
        yield f"\n{markdown.escaped(title(timed))}: {timed.verdict} {markdown.escaped(timed.reason)}\n"
        if timed.lanes:
            yield from markdown.table(HEADINGS, _rows(timed))
