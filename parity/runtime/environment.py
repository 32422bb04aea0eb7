"""The environment of a backend's process, made here so that a user's settings cannot change a verdict."""

import os
from pathlib import Path

import parity

# Fixed, since the number of threads changes the order of sums; one, since the backends run side by side.
THREADS = 1
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES")


def threads() -> int:
    """As many as this process was given by its parent; else the fixed number."""
    return int(os.environ.get("PARITY_THREADS", THREADS))


def environment(folder: Path, kind: str = "cpu", threads: int = THREADS) -> dict[str, str]:
    """Variables for a child; `folder` is where it may keep settings of its own, `kind` that of its devices."""
    cuda = {"CUDA_VISIBLE_DEVICES": "-1"} if kind == "cpu" else {}
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    paths = [str(Path(parity.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
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
