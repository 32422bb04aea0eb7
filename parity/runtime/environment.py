"""The environment of a backend's process: its variables, and released versions of a package in place of the installed.

A user's variables are there, such as where their data lies, but for settings of the frameworks, so that these cannot
change a verdict. A rank is told its number and its peers.

Each released version is installed in a folder of its own. pip lists and installs them, so that the user's index and its
settings hold. A folder holds the package and nothing that it requires: that is taken from the running environment, so
that nothing else differs from one version to the next.
"""

import contextlib
import importlib.util
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import parity
from parity.core.errors import UsageError, nearest

# Fixed, because the number of threads changes the order of sums; 1, because both backends run at the same time.
THREADS = 1
EXTRAS = {"torch": "torch", "keras": "tensorflow"}  # the extra of pyproject.toml that installs a backend's framework
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)[^']*'\s*\Z")  # matches the end of what was printed
OWN = ("parity", "torch_impl", "keras_impl")  # the packages of this project
# How the names of variables begin by which frameworks, their libraries and Python are set, or a launcher tells a rank.
SETTINGS = re.compile(
    "(TF|XLA|KERAS|JAX|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|ATEN|TRITON|CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|GLOO|OMP|GOMP|KMP|"
    "MKL|OPENBLAS|ONEDNN|DNNL|MALLOC|PARITY|LC|LOCAL|GROUP|ROLE|MASTER)_|PYTHON|LD_PRELOAD|LANG|RANK|WORLD_SIZE"
)
KEPT = ("CUDA_VISIBLE_DEVICES", "TORCH_HOME")  # and yet where, and on which files, is run


def threads() -> int:
    """Return the number of threads that the parent gave to this process, or else the default."""
    return int(os.environ.get("PARITY_THREADS", THREADS))


def environment(folder: Path, kind: str = "cpu", threads: int = THREADS, python: str = "") -> dict[str, str]:
    """Return the variables of a child process of `python` ("": this) on devices of a `kind`, with its own `folder`."""
    cuda = {"CUDA_VISIBLE_DEVICES": "-1"} if kind == "cpu" else {}
    kept = {name: value for name, value in os.environ.items() if name in KEPT or not SETTINGS.match(name)}
    paths = [str(_packages(folder, python)), *filter(None, [os.environ.get("PYTHONPATH")])]
    pools = ("PARITY_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **kept,
        **dict.fromkeys(pools, str(threads)),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C.UTF-8",
        "KERAS_BACKEND": "tensorflow",
        "KERAS_HOME": str(folder / "keras"),
        "PARITY_KERAS_HOME": os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras"),  # the user's data
        "TMPDIR": str(folder),  # TensorFlow leaves temporary files behind when its process is killed
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # By default glibc maps new pages for every large tensor and unmaps them afterwards (mallopt(3)).
        # Keeping the memory instead halves the time of a recording. Of very large tensors it would keep too much.
        "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        **cuda,
    }


def may_share(backend: str, kind: str, ranks: int) -> bool:
    """Return whether processes may be forks of one that has imported the framework.

    Not on GPUs, which a fork cannot use if an import has touched them; nor TensorFlow's workers, which lost their
    heartbeats to each other in such forks (TensorFlow 2.21: "heartbeat timeout").
    """
    return kind == "cpu" and (backend == "torch" or ranks == 1)


def _packages(folder: Path, python: str) -> Path:
    """Return the folder from which a child process imports this project's packages.

    For another interpreter it is a folder with links to these packages only. Their own folder may be site-packages,
    where the other interpreter would also find, and wrongly import, all other packages of this environment.
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
    """Return the message for a module that a backend's interpreter cannot import, with the command that installs it."""
    return (
        f"{module} is not installed for {python}; in this project's folder: {shlex.quote(python)} -m pip install "
        f"-c constraints.txt '.[{EXTRAS[backend]}]' ('.[all]' for both frameworks); the commands also take another "
        f"interpreter: --{backend}-python=PYTHON"
    )


def rank_variables(backend: str, ranks: int, folder: Path) -> list[dict[str, str]]:
    """Return the environment variables of each of `ranks` processes; a single process needs none."""
    if ranks == 1:
        return [{}]
    if backend == "keras":
        return _tensorflow(ranks)
    # torchrun's variables, but a file as the rendezvous: it needs no port, and is deleted with the folder.
    rendezvous = folder / "rendezvous"
    rendezvous.unlink(missing_ok=True)  # an earlier group of ranks may have left it
    common = {"WORLD_SIZE": str(ranks), "PARITY_RENDEZVOUS": rendezvous.absolute().as_uri(), "GLOO_SOCKET_IFNAME": "lo"}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **common} for rank in range(ranks)]


def _tensorflow(ranks: int) -> list[dict[str, str]]:
    """Return TF_CONFIG for tf.distribute.MultiWorkerMirroredStrategy, with ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    workers = [f"127.0.0.1:{listening.getsockname()[1]}" for listening in sockets]
    for listening in sockets:
        listening.close()
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})}
        for rank in range(ranks)
    ]


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
