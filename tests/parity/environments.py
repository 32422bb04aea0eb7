"""Virtual environments that have what pyproject.toml asks for, and nothing else of what is installed here."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]


def make(folder: Path, *wanted: str) -> str:
    """Make an environment in `folder` that meets these requirements; return its interpreter.

    What is installed here is linked. This project itself is not in it, but what it requires: PYTHONPATH leads to it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in required(*wanted):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # several have a part of the package `google`
                (packages / top).symlink_to(str(distribution.locate_file(top)))
    return str(folder / "bin" / "python")


def required(*wanted: str) -> set[str]:
    """Return the names of all distributions that requirements such as "framework-parity[torch]" ask for."""
    left = list(wanted)
    seen: dict[str, set[str]] = {}  # a name, and the extras of it that were looked at
    while left:
        requirement = Requirement(left.pop())
        known = seen.setdefault(requirement.name, set())
        for extra in {"", *requirement.extras} - known:
            known.add(extra)
            left += _asked_for(requirement.name, extra)
    return seen.keys() - {NAME}


def _asked_for(name: str, extra: str) -> list[str]:
    """Return the requirements of a distribution, "", or of one of its extras; of this project as the file has them."""
    if name == NAME:
        found: list[str] = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
        return found
    parsed = [Requirement(each) for each in metadata.requires(name) or []]
    return [str(each) for each in parsed if each.marker is None or each.marker.evaluate({"extra": extra})]
