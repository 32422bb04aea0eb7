"""parity/ imports no framework, torch_impl/ no TensorFlow, keras_impl/ no torch; shown in a process of their own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slow import WAIT

from parity.runtime.environment import environment

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "parity": {"torch", "tensorflow", "keras"},
    "torch_impl": {"tensorflow", "keras", "keras_impl"},
    "keras_impl": {"torch", "torch_impl"},
}

# Imports every module of a package and prints the forbidden ones that came with them. Keras looks
# for torch's dtypes only if torch is imported already, so that its presence would be seen here.
SCRIPT = """
import importlib, pkgutil, sys
package, forbidden = sys.argv[1], sys.argv[2].split(",")
root = importlib.import_module(package)
for module in pkgutil.walk_packages(root.__path__, package + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(",".join(name for name in forbidden if name in sys.modules))
"""


def imported(package: str, root: Path) -> set[str]:
    """The forbidden packages that importing all of `package` brings in."""
    arguments = [sys.executable, "-c", SCRIPT, package, ",".join(sorted(FORBIDDEN[package]))]
    ended = subprocess.run(arguments, cwd=root, capture_output=True, text=True, timeout=WAIT)
    assert ended.returncode == 0, ended.stderr
    return set(filter(None, ended.stdout.strip().split(",")))


@pytest.mark.parametrize(
    "package",
    [
        "parity",
        # By default tests/torch_impl and tests/keras_impl look into the processes that hold the framework already.
        pytest.param("torch_impl", marks=pytest.mark.slow),
        pytest.param("keras_impl", marks=pytest.mark.slow),
    ],
)
def test_a_package_imports_no_framework_of_the_other_side(package):
    assert imported(package, ROOT) == set()


@pytest.mark.parametrize(
    ("package", "file", "module"),
    [
        ("parity", "report/terminal.py", "torch"),
        pytest.param("torch_impl", "losses.py", "keras", marks=pytest.mark.slow),
    ],
)
def test_a_planted_import_is_seen(tmp_path, package, file, module):
    for name in FORBIDDEN:
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / f"{module}.py").touch()  # in the framework's place: it is seen by its name
    with (tmp_path / package / file).open("a") as source:
        source.write(f"import {module}\n")
    assert module in imported(package, tmp_path)


@pytest.mark.slow
def test_keras_starts_without_scikit_learn_and_leaves_it_to_programs(tmp_path):
    script = (
        "import sys; from keras_impl.__main__ import imports; imports(); import keras_impl.record.run, keras\n"
        "print('sklearn' in sys.modules); import sklearn.base; print(keras.__name__, sklearn.__name__)"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=WAIT)
    assert ended.stdout.splitlines() == ["False", "keras sklearn"], ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("package", ["torch_impl", "keras_impl"])
def test_what_processes_share_starts_no_thread(package, tmp_path):
    """A fork would not have it."""
    script = f"from {package}.__main__ import imports; imports(); import os; print(len(os.listdir('/proc/self/task')))"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=WAIT)
    assert ended.stdout.splitlines() == ["1"], ended.stderr
