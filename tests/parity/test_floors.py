"""The rooms of parity/ stand on floors: a room imports only rooms below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PARITY = Path(__file__).parents[2] / "parity"
# From the ground up. Rooms of one line import nothing of each other either.
FLOORS = (
    ("__init__", "core"),
    ("config",),
    ("data", "trace"),
    ("runtime",),
    ("details",),
    ("results",),
    ("layout",),
    ("verdict",),
    ("diagnose",),
    ("pairs",),
    ("subjects",),
    ("report", "cli"),
    ("asserts", "certify", "golden", "standalone", "doctor", "repair", "selftest"),
    ("bench",),
    ("advise",),
    ("bisect", "compare", "record", "pytest_plugin", "__main__"),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room(path: Path, package: Path) -> str:
    """The folder of a file, or the file itself where it lies in none."""
    return path.relative_to(package).parts[0].removesuffix(".py")


def imported(path: Path, package: Path) -> Iterator[str]:
    """The rooms that a file imports from, each as often as it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == package.name:
                yield found if (found := rest.partition(".")[0]) in FLOOR else "__init__"


def wrong(package: Path) -> list[str]:
    """Imports of a room that is not below."""
    return [
        f"{path.relative_to(package)} imports {other}"
        for path in sorted(package.rglob("*.py"))
        for other in imported(path, package)
        if other != (own := room(path, package)) and FLOOR[other] >= FLOOR[own]
    ]


def test_every_room_has_a_floor() -> None:
    assert {room(path, PARITY) for path in PARITY.rglob("*.py")} == set(FLOOR)


def test_imports_go_down() -> None:
    assert wrong(PARITY) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("trace/keys.py", "from parity.results import CaseResult"),
        ("data/keys.py", "from parity import trace"),
        ("trace/keys.py", "def later():\n    import parity.verdict.traces"),
    ],
)
def test_an_import_that_goes_up_is_seen(file: str, line: str, tmp_path: Path) -> None:
    package = tmp_path / "parity"
    for name, text in (
        ("trace/keys.py", ""),
        ("verdict/traces.py", "from parity.trace import keys"),
        ("results.py", ""),
    ):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    assert wrong(package) == []
    (package / file).parent.mkdir(exist_ok=True)
    (package / file).write_text(line)
    assert len(wrong(package)) == 1


# The files of the weight mapping, from the ground up.
WEIGHTS = (
    *("patterns", "transfer"),
    *("names", "units", "layouts", "links", "statistics", "align", "equal_shapes", "rules", "propose", "show"),
    *("runs", "resolve", "readings"),
)


def imports_of_weights(text: str) -> set[str]:
    """The files of the weight mapping that a file's text imports."""
    modules = [
        f"{node.module}.{alias.name}".split(".")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return {parts[3] for parts in modules if parts[:3] == ["parity", "pairs", "weights"]}


def test_the_files_of_the_weight_mapping_import_those_below() -> None:
    folder = PARITY / "pairs" / "weights"
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *WEIGHTS}
    for number, name in enumerate(WEIGHTS):
        assert imports_of_weights((folder / f"{name}.py").read_text()) <= set(WEIGHTS[:number]), name
    assert imports_of_weights(
        "from parity.pairs.weights import links\nfrom parity.pairs.weights.units import Unit"
    ) == {
        "links",
        "units",
    }
