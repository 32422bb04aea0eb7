"""The released versions of a package, each installed in a folder of its own.

pip lists and installs them, so that the user's index and its settings hold. A folder holds the package and nothing that
it requires: that is taken from the running environment, so that nothing else differs from one version to the next.
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import parity
from parity.core.errors import UsageError, nearest


class Releases:
    """The released versions of an installed package; `cache` is the folder for what is installed of them."""

    def __init__(self, package: str, cache: Path) -> None:
        try:
            self.installed = metadata.version(package)
        except (metadata.PackageNotFoundError, ValueError):
            near = nearest(package, {each.name for each in metadata.distributions()})
            raise UsageError(
                f"--package={package}: is not installed for {sys.executable}{near}; expected a package that the pair "
                "runs with in this environment"
            ) from None
        self.package = package
        # Wheels are made for an interpreter and a machine; a home may be shared by several.
        self.cache = cache / f"{sys.implementation.cache_tag}-{platform.machine()}"

    def between(self, good: str, bad: str) -> list[str]:
        """Return the final versions after `good` up to `bad`, oldest first. Raises UsageError unless they are so."""
        listed = re.search(r"^Available versions: (.*)$", self._pip("index", "versions", self.package), re.MULTILINE)
        versions = listed[1].split(", ")[::-1] if listed else []
        for flag, version in (("good", good), ("bad", bad)):
            if version not in versions:
                expected = ", ".join(versions[-8:])
                raise UsageError(
                    f"--{flag}={version}: pip finds no such version of {self.package}{nearest(version, versions)}; "
                    f"the latest are {expected}"
                )
        if (first := versions.index(good)) >= (last := versions.index(bad)):
            change = "name two versions" if good == bad else f"exchange the two: from {bad} to {good} it changed too"
            raise UsageError(f"--good={good} --bad={bad}: expected a good version that is older than the bad; {change}")
        return versions[first + 1 : last + 1]

    def variables(self, version: str) -> dict[str, str]:
        """Return the variables of a process that imports a version, installed if it is missing. Raises UsageError."""
        folder = self.cache / f"{self.package}-{version}"
        if version != self.installed and not folder.exists():
            with tempfile.TemporaryDirectory(dir=self.cache, prefix="installing-") as scratch:
                made = Path(scratch) / folder.name
                self._pip("install", "--no-deps", "--target", str(made), f"{self.package}=={version}")
                made.rename(folder)  # whole, or not there
        own = str(folder) if version != self.installed else ""
        paths = own, str(Path(parity.__file__).parents[1]), os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def _pip(self, *words: str) -> str:
        """Return what pip prints. Raises UsageError with its own words if it fails."""
        self.cache.mkdir(parents=True, exist_ok=True)
        python = sys.executable
        if importlib.util.find_spec("pip") is None:  # as in the environments that uv makes
            python = str(self.cache / "pip" / "bin" / "python")
            if not Path(python).with_name("pip").exists():
                _run("python -m venv", [sys.executable, "-m", "venv", "--clear", str(self.cache / "pip")])
        command = [python, "-m", "pip", "--no-input", "--disable-pip-version-check", *words]
        return _run(f"pip {words[0]} {words[-1]}", command)


def _run(what: str, command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stdout
    except subprocess.CalledProcessError as error:
        lines = [line for line in f"{error.stdout}\n{error.stderr}".splitlines() if line.strip()] or [str(error)]
        said = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines
        raise UsageError(f"{what}: {said[-1]}") from None
