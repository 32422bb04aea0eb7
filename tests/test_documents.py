"""README.md, CONTRIBUTING.md and docs/*.md: commands do what they say, files work, links lead somewhere.

A page is run from its top to its end, in a folder of its own: a block of Python or TOML whose first line is a comment
with a file's name is written there, or is an excerpt of that file where the name has a folder; each command of a `sh`
block must end with status 0; a `console` block is a command, what it prints, line by line from the first to the last
("..." stands for lines that are left out), and, behind `$ echo $?`, its status if that is not 0.
"""

import ast
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from parity.config.strategies import Name, Strategy
from parity.layout.declared import DECLARED

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([^\s/]+\.(?:py|toml))\n")
EXCERPT = re.compile(r"# (\S+/\S+\.py)\n")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MEASURED = re.compile(r"float64\[|\d\+\d")  # lines whose numbers are not the same on every machine
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
TIMES = re.compile(r"\d\S* (?:µs|ms|s)\b.*|, \d+% of the step's time")  # the doctor's
LEFT_OUT = "..."
# Commands that only CI runs (.ci/run), in environments of its own.
IN_CI = ("pip install", "pytest", "ruff", "mypy")
CI = (
    re.findall(rf"\b((?:{'|'.join(IN_CI)})\b.*)", (ROOT / ".ci" / "run").read_text()) if (ROOT / ".ci").exists() else []
)
LONGEST_README = 150
# What keeps a command short without changing what it shows.
SHORT = {
    "python -m parity.compare": ["--case=two_linear/single", "--case=two_linear/data_parallel"],
    "python -m parity.compare --case=transformer/single --precision=bfloat16 --seed=1": [
        "--set", "model.vocabulary=50", "--set", "model.d_model=16", "--set", "model.feed_forward=16",
        "--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1",
    ],
    "python -m parity.selftest --fault='*:adam*' --clean=3": ["--clean=0"],  # tests/test_catalogue.py has some
}  # fmt: skip


class Command(NamedTuple):
    """A command of a page. `shown`: the lines that it is said to print; `files`: those shown before it on the page."""

    page: str
    text: str
    shown: list[str]
    status: int
    files: dict[str, str]


def commands(page: str) -> Iterator[Command]:
    """All commands of a page, in order, with those that only CI runs."""
    files: dict[str, str] = {}
    for kind, text in BLOCK.findall(PAGES[page]):
        if kind in ("python", "toml") and (name := FILE.match(text)):
            files = {**files, name[1]: text}
        if kind == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                yield Command(page, line, [], 0, files)
        if kind == "console":
            said, _, status = text.partition("$ echo $?\n")
            first, *shown = said.splitlines()
            yield Command(page, first.removeprefix("$ "), shown, int(status or 0), files)


ALL = [command for page in PAGES for command in commands(page)]


def without_installing(command: Command) -> str:
    """The command behind `pip install ... &&`, or all of it."""
    return command.text.rpartition(" && ")[2] if command.text.startswith("pip install") else command.text


def runnable() -> list:
    """Commands as parameters; pages behind the README take minutes in all."""
    chosen = [command for command in ALL if not without_installing(command).startswith(IN_CI)]
    return [
        pytest.param(
            command,
            id=f"{command.page}: {without_installing(command)}",
            marks=[] if command.page == "README.md" else pytest.mark.slow,
        )
        for command in chosen
    ]


class Folder:
    """A page's own: later commands read what earlier ones wrote."""

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, {}

    def write(self, files: dict[str, str]) -> None:
        """Write those that the page has shown since; what a command has changed in the others stays."""
        for name, text in files.items():
            if self.shown.get(name) != text:
                (self.path / name).write_text(text)
        self.shown.update(files)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Folder]:
    return {page: Folder(tmp_path_factory.mktemp("page")) for page in PAGES}


@pytest.mark.parametrize("command", runnable())
def test_a_command_ends_well(command, folders, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folders[command.page].write(command.files)
    line = without_installing(command)
    program, *arguments = shlex.split(line) + SHORT.get(line, [])
    assert program == "python", "expected a command that starts with python"
    ended = subprocess.run([sys.executable, *arguments], cwd=folders[command.page].path, capture_output=True, text=True)
    assert ended.returncode == command.status, ended.stdout + ended.stderr
    assert ended.stdout
    assert "Traceback" not in ended.stderr
    assert unlike(command.shown, ended.stdout) == [], ended.stdout


def unlike(shown: list[str], printed: str) -> list[str]:
    """The first lines that are shown in a row and not printed so, behind the others; empty lines are of no account."""
    left = [comparable(line) for line in printed.splitlines() if line.strip()]
    parts = [list(part) for is_left_out, part in itertools.groupby(shown, LEFT_OUT.__eq__) if not is_left_out]
    for number, part in enumerate(parts):
        wanted = [comparable(line) for line in part if line.strip()]
        last = len(left) - len(wanted)
        starts = set(range(last + 1))
        if number == 0 and shown[0] != LEFT_OUT:
            starts &= {0}
        if number == len(parts) - 1 and shown[-1] != LEFT_OUT:
            starts &= {last}
        start = next((start for start in sorted(starts) if left[start : start + len(wanted)] == wanted), None)
        if start is None:
            return part
        left = left[start + len(wanted) :]
    return []


def comparable(line: str) -> str:
    """A line with its indentation and single spaces, and without its numbers where they are measured."""
    words = TIMES.sub("", " ".join(line.split()))
    words = NUMBER.sub("#", words) if MEASURED.search(words) else words
    return " " * (len(line) - len(line.lstrip())) + words


def test_a_block_that_is_not_what_is_printed_is_found():
    printed = "a  1\n\n  b\nc\nstep 1.2 ms, forward 3\n"
    for shown in (["a 1", "  b", "...", "step 3.4 ms"], ["...", "step 945 µs, forward 133"], ["..."], []):
        assert unlike(shown, printed) == []
    assert unlike(["...", "  b", "c", "..."], printed) == []
    assert unlike(["a 2", "..."], printed) == ["a 2"]
    assert unlike(["a 1", "..."], printed) == unlike(["a 1", "...", "...", ""], printed) == []
    assert unlike(["a 1"], printed) == ["a 1"]  # more is printed
    assert unlike(["  b", "..."], printed) == ["  b"]  # it begins with something else
    assert unlike(["...", "b", "..."], printed) == ["b"]  # of another indentation
    assert unlike(["...", "  b", "step 1 ms"], printed) == ["  b", "step 1 ms"]  # there is a line between the two
    assert unlike(["...", "c", "...", "  b", "..."], printed) == ["  b"]  # in another order


def missing(shown: list[str], text: str) -> list[str]:
    """The first line of an excerpt that is not in a text behind the others, if there is one."""
    left = iter(text.splitlines())
    return [line for line in shown if line not in left][:1]


def test_the_commands_are_found():
    assert len([command for command in ALL if command.page == "README.md"]) >= 5
    assert SHORT.keys() <= {without_installing(command) for command in ALL}


@pytest.mark.skipif(not CI, reason="is of a checkout")
@pytest.mark.parametrize("line", sorted({command.text for command in ALL if command.text.startswith(IN_CI[1:])}))
def test_what_is_not_run_here_is_run_by_ci(line):
    ran = [each for each in CI if each.startswith(IN_CI[1:])]
    assert line == "pytest" or any(line.startswith(each) for each in ran)  # the former ends the README's test command


@pytest.mark.parametrize("page", PAGES)
def test_fragments_can_be_read(page):
    for kind, text in BLOCK.findall(PAGES[page]):
        if kind == "python" and not EXCERPT.match(text):
            ast.parse(text)
        if kind == "toml":
            tomllib.loads(text)


def excerpts() -> list:
    """The blocks that are of files of the repository: the page, the file, the text."""
    blocks = [(page, EXCERPT.match(text), text) for page in PAGES for _, text in BLOCK.findall(PAGES[page])]
    return [(page, name[1], text) for page, name, text in blocks if name]


def code(text: str) -> list[str]:
    """The lines of a text without comments: those of an excerpt may speak to the reader of the page."""
    return [line for line in re.sub(r" *# .*", "", text).splitlines() if line]


@pytest.mark.skipif(not CI, reason="is of a checkout")
def test_an_excerpt_is_verbatim():
    assert excerpts()
    for page, name, text in excerpts():
        assert missing(code(text), "\n".join(code((ROOT / name).read_text()))) == [], (page, name)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    without_code = BLOCK.sub("", PAGES[page])
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)}


def links(page: str) -> list[str]:
    without_code = BLOCK.sub("", PAGES[page])
    return [link for link in LINK.findall(without_code) if not link.startswith(("http:", "https:"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(Path(page).parent / path) if path else page
        assert (ROOT / target).exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_linked_from_the_readme():
    assert set(PAGES) - {"README.md"} <= set(links("README.md"))


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= LONGEST_README


def test_the_picture_of_the_house_is_true():
    picture = PAGES["CONTRIBUTING.md"].partition("## How it is built")[2]
    names = re.findall(r"^ +(\w+(?:\.py|/)) ", picture, re.MULTILINE)
    assert len(names) > 10
    for name in names:
        assert list(ROOT.glob(f"*/{name}")) or (ROOT / name).exists(), name


def texts() -> str:
    """All texts of the sources, in pieces where something is filled in."""
    files = [path for package in ("parity", "torch_impl", "keras_impl") for path in (ROOT / package).rglob("*.py")]
    return "\n".join(text for file in files for text in constants(compile(file.read_text(), file, "exec")))


def constants(of: Any) -> Iterator[str]:
    """The texts that a piece of code holds, those of the functions and classes in it too."""
    if isinstance(of, str):
        yield of
    for inner in of if isinstance(of, tuple | frozenset) else getattr(of, "co_consts", ()):
        yield from constants(inner)


def messages() -> list[str]:
    """The messages that the page on troubleshooting explains, without what is filled in."""
    page = PAGES["docs/troubleshooting.md"].partition("## Flags and cases")[2].partition("## A verdict")[0]
    rows = "\n".join(line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `"))
    quoted = re.findall(r"`([^`\n]*)`", rows) + re.findall(r"^\*\*`([^`]*)`", page, re.MULTILINE)
    return [part.strip() for text in quoted for part in text.split("...") if len(part.strip()) > 5]


@pytest.mark.skipif(not CI, reason="is of a checkout")
def test_the_messages_that_are_explained_are_those_of_the_programs():
    said = texts()
    assert len(messages()) > 80
    assert [message for message in messages() if message not in said] == []


def rows(page: str, heading: str) -> list[str]:
    """The rows of the first table below a heading, without its head."""
    table = PAGES[page].partition(f"{heading}\n")[2].partition("| ")[2].partition("\n\n")[0]
    return table.splitlines()[2:]


def test_every_strategy_is_explained():
    names = set(get_args(Name))
    assert {re.findall(r"`(\w+)`", row)[0] for row in rows("docs/strategies.md", "two frameworks")} == names
    assert names <= anchors("docs/strategies.md")


def test_every_declared_difference_is_explained():
    listed = [set(re.findall(r"`(\w+)`", row.split(" | ")[0])) for row in rows("docs/layouts.md", "as a difference")]
    declared = [
        {kind.__struct_config__.tag for kind in get_args(Strategy) if issubclass(kind, rule.strategies)}
        for rule in DECLARED
    ]
    assert sorted(map(sorted, listed)) == sorted(map(sorted, declared))
