"""The README's commands do what they say. The installing ones are run by CI (.ci/run)."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"python -m parity\.\S+.*", "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)))
# What keeps a command short without changing what it shows.
SHORT = {
    "python -m parity.compare": ["--case=simple_block/single", "--case=two_linear/*"],
    "python -m parity.compare --case=transformer/single --precision=bfloat16 --seed=1": [
        "--set", "model.vocabulary=50", "--set", "model.d_model=16", "--set", "model.feed_forward=16",
        "--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1",
    ],
    "python -m parity.selftest --fault='*:adam*' --clean=3": ["--clean=0"],  # tests/test_catalogue.py has some
}  # fmt: skip


def test_the_commands_are_found():
    assert len(COMMANDS) >= 6
    assert SHORT.keys() <= set(COMMANDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One folder for all commands, with the files that the README shows: the later read what the earlier wrote."""
    folder = tmp_path_factory.mktemp("readme")
    for name, text in re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", README, re.DOTALL):
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_well(command, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    arguments = shlex.split(command)[1:] + SHORT.get(command, [])
    ended = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout
    assert "Traceback" not in ended.stderr


def test_the_doctor_says_what_is_shown_of_the_program_that_is_shown(tmp_path, monkeypatch):
    """All but the times, and the share of a step that waiting takes, where it is worth a word."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "train.py").write_text(re.search(r"```python\n(# train\.py\n.*?)```", README, re.DOTALL)[1])
    command, shown = re.search(r"```text\n\$ python (-m parity\.doctor .*?)\n(.*?)```", README, re.DOTALL).groups()
    ended = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1, ended.stderr
    told = [line for line in shown.splitlines() if line.startswith(("error", "warning", "  fix")) or "finding" in line]
    assert [line for line in ended.stdout.splitlines() if line in told] == told, ended.stdout


def test_the_picture_of_the_house_is_true():
    for name in re.findall(r"^ +(\w+(?:\.py|/)) ", README.partition("## How it is built")[2], re.MULTILINE):
        assert list(ROOT.glob(f"*/{name}")) or (ROOT / name).exists(), name
