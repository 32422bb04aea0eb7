"""Virtual environments that have what pyproject.toml asks for, and nothing else of what is installed here."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(*extras: str) -> set[str]:
    """Return the names of the distributions that this project needs with these extras, and those that they need."""
    wanted = [*PROJECT["dependencies"], *_of_extras(extras)]
    seen: dict[str, set[str]] = {}
    while wanted:
        requirement = Requirement(wanted.pop())
        known = seen.setdefault(requirement.name, set())
        new = ({""} | requirement.extras) - known
        known |= new
        for each in metadata.requires(requirement.name) or [] if new else []:
            marker = Requirement(each).marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in new):
                wanted.append(each)
    return set(seen)


def _of_extras(extras: Iterator[str] | tuple[str, ...] | set[str]) -> Iterator[str]:
    """Yield the requirements of this project's extras, and of the extras that these name."""
    for extra in extras:
        for each in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(each)
            if requirement.name == PROJECT["name"]:
                yield from _of_extras(requirement.extras)
            else:
                yield each


def make(folder: Path, *extras: str, more: tuple[str, ...] = ()) -> str:
    """Make an environment in `folder` with this project's requirements, and those of `more`; return its interpreter.

    What is installed here is linked, not copied. This project itself is not in it: PYTHONPATH leads to it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    names = requirements(*extras) | set(more)
    for name in names:
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    return str(folder / "bin" / "python")
