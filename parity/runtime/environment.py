"""The environment of a backend's process, made here so that a user's settings cannot change a verdict."""

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path

import parity

# Fixed, since the number of threads changes the order of sums; one, since the backends run side by side.
THREADS = 1
EXTRAS = {"torch": "torch", "keras": "tensorflow"}  # what pyproject.toml installs the framework of a backend by
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)[^']*'\s*\Z")  # the end of what was printed
OWN = ("parity", "torch_impl", "keras_impl")  # this project's packages
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES")


def threads() -> int:
    """As many as this process was given by its parent; else the fixed number."""
    return int(os.environ.get("PARITY_THREADS", THREADS))


def environment(folder: Path, kind: str = "cpu", threads: int = THREADS, python: str = "") -> dict[str, str]:
    """Return the variables for a child of the interpreter `python` ("" for this one).

    `folder` is where it may keep settings of its own, `kind` that of its devices.
    """
    cuda = {"CUDA_VISIBLE_DEVICES": "-1"} if kind == "cpu" else {}
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    paths = [str(_packages(folder, python)), *filter(None, [os.environ.get("PYTHONPATH")])]
    pools = ("PARITY_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return (
        kept
        | dict.fromkeys(pools, str(threads))
        | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "LC_ALL": "C.UTF-8",
            "KERAS_BACKEND": "tensorflow",
            "KERAS_HOME": str(folder / "keras"),
            "TMPDIR": str(folder),  # TensorFlow leaves files behind where a process is killed
            "TF_CPP_MIN_LOG_LEVEL": "2",
            # glibc maps every large tensor afresh and unmaps it, page by page; kept, half the time of
            # a recording goes (mallopt(3)).
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        }
        | cuda
    )


def _packages(folder: Path, python: str) -> Path:
    """Return the folder that a child finds this project's packages in.

    For another interpreter it holds links to them alone: where they are installed, all packages of this interpreter's
    environment are beside them, and would be taken for those of the other.
    """
    home = Path(parity.__file__).parents[1]
    if python in ("", sys.executable):
        return home
    links = folder / "packages"
    links.mkdir(exist_ok=True)
    for name in OWN:
        with contextlib.suppress(FileExistsError):
            (links / name).symlink_to(home / name, target_is_directory=True)
    return links


def not_installed(module: str, backend: str, python: str) -> str:
    """Return what is said of a module that a backend's interpreter does not find, and how to install it there."""
    return (
        f"{module} is not installed for {python}; in this project's folder: {shlex.quote(python)} -m pip install "
        f"-c constraints.txt '.[{EXTRAS[backend]}]' ('.[all]' for both frameworks); the commands also take another "
        f"interpreter: --{backend}-python=PYTHON"
    )
