"""The programs as a user meets them: the status, one line for every mistake, clean stdout. No framework is started."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from processes import Ended, within
from synthetic import Seen, by_hand, record, small_case, whole

from parity import cli
from parity.compare import main as compare_main
from parity.config import cases
from parity.record import main as record_main
from parity.trace import keys, manifest
from parity.trace.layout import Layout

ROOT = Path(__file__).parents[2]
UNSET = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if name not in UNSET}, "PYTHONPATH": str(ROOT)}
COLOUR = re.compile(r"\x1b\[[\d;]*3\d")


def program(name: str, *args: object) -> Ended:
    main = {"compare": compare_main, "record": record_main}[name]
    with mock.patch.dict(os.environ, ENVIRONMENT, clear=True):
        return within(lambda: cli.end(f"parity.{name}", main), name, *args)


def compare(*args: object) -> Ended:
    return program("compare", *args)


def complaint(ended: Ended, name: str = "compare") -> str:
    """The one line of a program that could not use what it was given."""
    assert ended.status == 2, ended.err
    assert ended.out == ""
    assert ended.err.count("\n") == 1 and ended.err.endswith("\n"), ended.err
    assert ended.err.startswith(f"parity.{name}: ")
    assert "Traceback" not in ended.err
    return ended.err


def bigger(factor: float) -> Any:
    def fault(seen: Seen) -> Any:
        here = (seen.kind, seen.name) == ("activation", "relu")
        return seen.value * seen.value.dtype.type(factor) if here else seen.value

    return fault


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torch beside an honest keras, one with a small and one with a large fault."""
    folder = tmp_path_factory.mktemp("traces")
    record(folder / "torch", "torch")
    record(folder / "keras", "keras", backwards=True)
    record(folder / "small", "keras", fault=bigger(1 + 1e-9), runs=("low", "high"))
    record(folder / "large", "keras", fault=bigger(1.5))
    return folder


@pytest.fixture
def copy(traces: Path, tmp_path: Path) -> Path:
    """A trace of the test's own, to be damaged."""
    return Path(shutil.copytree(traces / "keras", tmp_path / "keras"))


# What cannot be used

BLOCK = "--case=simple_block/single"
OUT = "--out=/dev/null/out"
ACCEPT = "--accept writes into a pair file"
MISTAKES: list[tuple[str, list[str], list[str]]] = [
    ("compare", ["--case=simple_blok/single"], ["no case matches", "did you mean 'simple_block/single'", "--list"]),
    ("compare", ["--stirct"], ["--stirct", "did you mean '--strict'"]),
    ("compare", ["--sed=3"], ["--sed", "did you mean '--seed'"]),
    ("compare", [BLOCK, "--set", "model.hiden=3"], ["hiden", "did you mean 'hidden'", "$.model"]),
    ("compare", [BLOCK, "--set", "model.hidden=many"], ["Expected `int`, got `str`", "$.model.hidden"]),
    ("compare", [BLOCK, "--set", "optimizer.nesterov=true", "--set", "optimizer.momentum=0.0"], ["momentum above 0"]),
    ("compare", [BLOCK, "--set", "steps"], ["expected name=value"]),
    ("compare", ["--steps=0"], ["--steps", "received '0', expected a whole number of 1 or more"]),
    ("compare", ["--seed=x"], ["--seed", "int", "'x'"]),
    ("compare", ["--precision=float8"], ["float8", "bfloat16"]),
    ("compare", ["--devices=tpu:2"], ["--devices=tpu:2: expected auto, cpu:N or gpu:N, e.g. cpu:2"]),
    ("compare", ["--devices=cpu:0"], ["--devices=cpu:0: expected"]),
    ("compare", [BLOCK, "--set", "workers=true"], ["workers = true needs the strategy 'ddp', received 'single'"]),
    ("compare", ["--json"], ["--json"]),
    ("compare", ["trace"], ["received 1", "expected two"]),
    ("compare", ["a", "b", "c"], ["received 3", "expected two"]),
    ("compare", ["a", "b", BLOCK], ["no flags that choose or change cases"]),
    ("compare", ["nowhere", "nowhere"], ["nowhere: holds no trace"]),
    ("compare", ["--torch=a:b"], ["needs all of --torch, --keras and --input"]),
    ("compare", ["--torch=a:b", "--keras=c:d"], ["needs all of --torch, --keras and --input"]),
    ("compare", ["--mapping"], ["--mapping is for pairs only: it needs --pair=FILE.toml"]),
    ("compare", ["--pair=none.toml"], ["none.toml: cannot be read: No such file or directory"]),
    ("compare", ["--torch=a:b", "--keras=c:d", "--input=x=float32[4,6]", "--accept"], [ACCEPT]),
    ("compare", ["--pair=none.toml", "--set", "train.steps=1", "--accept"], [ACCEPT]),
    ("compare", ["--case=two_linear/single", "--accept"], [ACCEPT]),
    ("record", ["--backend=torch"], ["--out"]),
    ("record", ["--backend=jax", OUT], ["'jax'", "torch", "keras"]),
    ("record", ["--backend=torch", OUT, "--case=nothing"], ["no case matches 'nothing'"]),
    ("record", ["--backend=torch", OUT, "--precison=float16"], ["did you mean '--precision'"]),
    ("record", ["--backend=torch", OUT, BLOCK, "--devices=two"], ["--devices=two: expected"]),
    ("record", ["--backend=torch", OUT, BLOCK, "--set", "stpes=3"], ["did you mean 'steps'"]),
    ("record", ["--backend=torch", OUT, BLOCK], ["--out=/dev/null/out", "expected a folder"]),
]


@pytest.mark.parametrize(("name", "args", "said"), MISTAKES, ids=[" ".join(args) for _, args, _ in MISTAKES])
def test_a_mistake_is_one_line_and_status_2(name: str, args: list[str], said: list[str]) -> None:
    line = complaint(program(name, *args), name)
    assert [word for word in said if word not in line] == []


@pytest.mark.parametrize(
    ("name", "args", "flags"),
    [
        ("compare", ["own.toml"], "--pair=own.toml"),
        ("compare", ["other.toml", "own"], "--pair=other.toml --pair=own.toml"),  # the former is not there
        ("compare", ["--case=own"], "--pair=own.toml"),
        ("compare", ["--case=simple_block/*", "--case=pair/own"], "--pair=own.toml"),
        ("compare", ["--case=sub folder/own.toml"], "--pair='sub folder/own.toml'"),
        ("record", ["--backend=torch", OUT, "own.toml"], "--pair=own.toml"),
        ("record", ["--backend=torch", OUT, "--case=own"], "--pair=own.toml"),
    ],
)
def test_a_pair_s_file_where_something_else_is_expected(
    name: str, args: list[str], flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").touch()
    (tmp_path / "single.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert f"write {flags}; --help" in complaint(program(name, *args), name)
    assert "--pair" not in complaint(compare("--case=elsewhere"))
    assert "--pair" not in complaint(compare("--case=*/single", "--steps=0"))  # of cases, whatever files there are


def test_a_number_that_is_none_is_told_in_the_user_s_words() -> None:
    line = complaint(compare("--steps=many"))
    assert "--steps" in line and "'many'" in line and "_count" not in line


@pytest.mark.parametrize("flag", ["--steps=2", "--seed=1", "--precision=float16", "--every=2", "--devices=cpu:2"])
def test_flags_that_recorded_traces_cannot_follow_are_refused(flag: str, traces: Path) -> None:
    complaint(compare(traces / "torch", traces / "keras", flag))


def test_a_truncated_trace(traces: Path, copy: Path) -> None:
    assert compare(traces / "torch", copy, "--quiet") == (0, "", "")
    file = copy / "high/rank-0/step-000002.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    line = complaint(compare(traces / "torch", copy))
    assert str(file) in line and "truncated" in line


def test_a_case_that_only_one_folder_has(tmp_path: Path) -> None:
    content = {"high": {"step-000000": {"loss/loss": np.asarray(1.0)}}}
    content["low"] = content["high"]
    other = cases.resolve("two_linear/single")
    for name, case in (("a/one", None), ("a/two", other), ("b/one", None)):
        by_hand(tmp_path / name, whole(content, case), case=case)
    assert "two_linear/single" in complaint(compare(tmp_path / "a", tmp_path / "b"))
    by_hand(tmp_path / "b/two", whole(content, other), "keras", case=other)
    assert compare(tmp_path / "a", tmp_path / "b", "--quiet").status == 0
    by_hand(tmp_path / "b/again", content, "keras", case=other)
    assert "two traces of two_linear/single" in complaint(compare(tmp_path / "a", tmp_path / "b"))


def test_the_report_is_in_the_order_of_the_cases(tmp_path: Path) -> None:
    """However the folders of the traces are called."""
    content = {run: {"step-000000": {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    folders = {"transformer/single": "a", "simple_block/single": "b", "linear_stack/single": "c"}
    for side in ("torch", "keras"):
        for name, folder in folders.items():
            case = cases.resolve(name)
            by_hand(tmp_path / side / folder, whole(content, case), side, case=case)
    ended = compare(tmp_path / "torch", tmp_path / "keras", "--json=-")
    assert [case["case"] for case in json.loads(ended.out)["cases"]] == sorted(folders, key=cases.names().index)
    rows = [line.split()[0] for line in ended.err.splitlines() if line.partition(" ")[0] in folders]
    assert rows == sorted(folders, key=cases.names().index) == list(reversed(folders))


@pytest.mark.parametrize("lost", ["initial", "step-000000", "step-000001", "step-000003"])
@pytest.mark.parametrize("run", ["low", "high"])
def test_a_step_that_neither_manifest_lists_is_missed(lost: str, run: str, tmp_path: Path) -> None:
    for name in ("torch", "keras"):
        facts = record(tmp_path / name, name, runs=("low", "high")).manifest
        files = {file: listed for file, listed in facts.files.items() if file != f"{run}/rank-0/{lost}"}
        manifest.write(tmp_path / name, msgspec.structs.replace(facts, files=files))
    said = complaint(compare(tmp_path / "torch", tmp_path / "keras"))
    assert f"is truncated: its {run} run has no {lost}" in said and "record the trace again" in said


def test_traces_with_nothing_in_them_are_not_a_match(tmp_path: Path) -> None:
    for name in ("torch", "keras"):
        by_hand(tmp_path / name, {}, name)
    assert compare(tmp_path / "torch", tmp_path / "keras").status == 2


# What can


@pytest.mark.parametrize("name", ["compare", "record"])
def test_help_is_no_mistake(name: str) -> None:
    ended = program(name, "--help")
    assert (ended.status, ended.err) == (0, "")
    assert f"usage: parity.{name}" in ended.out and "--case" in ended.out


def test_list_prints_the_names() -> None:
    ended = compare("--list")
    assert (ended.status, ended.out.split("\n"), ended.err) == (0, [*cases.names(), ""], "")


@pytest.mark.parametrize(
    ("candidate", "flags", "status", "verdict"),
    [
        ("keras", [], 0, "match"),
        ("keras", ["--strict"], 0, "match"),
        ("small", [], 0, "subprecision"),
        ("small", ["--strict"], 1, "subprecision"),
        ("large", [], 1, "diverged"),
    ],
)
def test_two_traces_are_judged(candidate: str, flags: list[str], status: int, verdict: str, traces: Path) -> None:
    ended = compare(traces / "torch", traces / candidate, *flags)
    assert (ended.status, ended.err) == (status, "")
    assert f"1 case: 1 {verdict}\n" in ended.out
    assert re.search(rf"^simple_block/single +{verdict} ", ended.out, re.MULTILINE)
    assert ("step 0: output of module `relu`\n" in ended.out) == (verdict != "match")
    assert "\x1b" not in ended.out


def test_torch_is_the_reference_whichever_is_named_first(traces: Path) -> None:
    one, other = (
        compare(*pair, "--quiet", "--json=-").out
        for pair in ((traces / "torch", traces / "large"), (traces / "large", traces / "torch"))
    )
    assert one.partition('"cases"')[2] == other.partition('"cases"')[2]  # in the order of the text, too
    assert list(json.loads(other)["cases"][0]["first_divergence"]["sides"]) == ["torch", "keras"]


def test_json_on_stdout_sends_the_table_to_stderr(traces: Path) -> None:
    ended = compare(traces / "torch", traces / "large", "--json=-")
    report = json.loads(ended.out)
    assert ended.status == 1
    assert report["summary"]["diverged"] == 1
    assert report["environment"].keys() == {"torch", "keras"}
    assert "1 case: 1 diverged" in ended.err and "simple_block/single" in ended.err


def test_quiet_says_nothing(traces: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert compare(traces / "torch", traces / "large", "--quiet", f"--json={file}") == (1, "", "")
    assert json.loads(file.read_text())["cases"][0]["verdict"] == "diverged"


def test_two_traces_of_one_backend_are_reference_and_candidate(traces: Path, copy: Path) -> None:
    manifest = copy / keys.MANIFEST
    manifest.write_text(re.sub(r'"numpy": "0"', '"numpy": "1"', manifest.read_text()))
    ended = compare(traces / "keras", copy, "--quiet", "--json=-")
    environment = json.loads(ended.out)["environment"]
    assert {side: facts["numpy"] for side, facts in environment.items()} == {"reference": "0", "candidate": "1"}


@pytest.mark.parametrize("name", ["blocks[0]", "a[bold]b", "a[/bold]b", "a[/]b"])
def test_names_are_printed_as_they_are(name: str, tmp_path: Path) -> None:
    for side, value in (("torch", 1.0), ("keras", 2.0)):
        content = {"step-000000": {f"activation/{name}": np.full(2, value)}}
        layout = Layout(devices=[f"CPU:{name}"], parameters={})
        by_hand(tmp_path / side, whole({"high": content, "low": content}), side, layout=layout)
    ended = compare(tmp_path / "torch", tmp_path / "keras")
    assert ended.status == 1
    assert f"step 0: output of module `{name}`\n" in ended.out
    assert f"CPU:{name} " in ended.out


def on_terminal(*args: object, **environment: str) -> str:
    """What a program writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "parity.compare", *map(str, args)]
    variables = {**ENVIRONMENT, "TERM": "xterm-256color", "COLUMNS": "150", **environment}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=variables):
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the other end was closed
                break
            if not part:
                break
            written += part
    os.close(ours)
    return written.decode()


def test_colours_on_a_terminal_unless_no_color_is_set(traces: Path) -> None:
    sides = traces / "torch", traces / "large"
    assert COLOUR.search(on_terminal(*sides))
    plain = on_terminal(*sides, NO_COLOR="1")
    assert "diverged" in plain and not COLOUR.search(plain)


@pytest.mark.parametrize("flags", [[], ["--layout"]])
def test_layouts_are_printed_and_reported_where_they_are_asked_for(flags: list[str], traces: Path) -> None:
    sides = traces / "torch", traces / "keras"
    report = json.loads(compare(*sides, "--quiet", "--json=-", *flags).out)
    layouts = report["cases"][0]["checks"]["layout"]["sides"]
    assert list(layouts) == (["torch", "keras"] if flags else [])
    assert ("parameters: linear1.weight" in compare(*sides, *flags).out) == bool(flags)


def test_replicas_are_judged_as_recorded(tmp_path: Path) -> None:
    case = small_case(strategy="ddp", devices=2)
    record(tmp_path / "torch", "torch", case)
    record(tmp_path / "keras", "keras", case, backwards=True)

    def fault(seen: Seen) -> Any:
        return seen.value * seen.value.dtype.type(1.5) if (seen.replica, seen.kind) == (1, "loss") else seen.value

    record(tmp_path / "wrong", "keras", case, fault=fault)
    assert compare(tmp_path / "torch", tmp_path / "keras", "--strict").status == 0
    ended = compare(tmp_path / "torch", tmp_path / "wrong")
    assert ended.status == 1 and "step 0: loss, replica 1\n" in ended.out


# Cases that the devices do not allow

HYBRID = "--case=simple_block/hybrid"


def test_a_case_that_the_devices_do_not_allow_is_skipped_with_its_reason() -> None:
    pythons = "--torch-python=/nonexistent/python", "--keras-python=/nonexistent/python"  # nothing is started
    ended = compare(HYBRID, "--devices=cpu:3", "--json=-", *pythons)
    report = json.loads(ended.out)
    (case,) = report["cases"]
    assert (ended.status, report["summary"]["skipped"], case["verdict"]) == (2, 1, "skipped")
    assert "an even number of devices, at least 4, not 3" in case["reason"]
    assert f"  {case['reason']}\n" in ended.err


def test_a_skipped_case_does_not_hide_one_that_fails() -> None:
    pythons = "--torch-python=/nonexistent/python", "--keras-python=/nonexistent/python"
    ended = compare(HYBRID, BLOCK, "--devices=cpu:2", "--quiet", "--json=-", *pythons)
    assert ended.status == 3
    found = [(case["case"], case["verdict"]) for case in json.loads(ended.out)["cases"]]
    assert found == sorted(found, key=lambda pair: cases.names().index(pair[0]))  # the skipped one was known first
    assert dict(found) == {"simple_block/hybrid": "skipped", "simple_block/single": "error"}


@pytest.fixture(params=["no driver", "a driver, and frameworks that see no GPU"])
def without_gpu(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine without a GPU, whatever this one has; returns flags for interpreters that start no framework."""
    monkeypatch.setitem(ENVIRONMENT, "PATH", str(tmp_path))
    started = tmp_path / "python"
    code = "import sys\nif '-m' in sys.argv:\n    open(sys.argv[0] + '.ran', 'w')\nprint(0)\n"
    for path in (started, *([tmp_path / "nvidia-smi"] if request.param != "no driver" else [])):
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)
    return [f"--torch-python={started}", f"--keras-python={started}"]


def test_gpus_that_are_not_there_skip_every_case(without_gpu: list[str], tmp_path: Path) -> None:
    ended = compare(BLOCK, HYBRID, "--case=simple_block/ddp", "--devices=gpu:2", "--json=-", *without_gpu)
    report = json.loads(ended.out)
    reason = "gpu:2: this machine has no GPU that torch and keras can use"
    assert (ended.status, report["summary"]) == (
        2,
        {"match": 0, "subprecision": 0, "inconclusive": 0, "diverged": 0, "error": 0, "skipped": 3},
    )
    assert [(case["verdict"], case["reason"]) for case in report["cases"]] == [("skipped", reason)] * 3
    assert ended.err.count(f"  {reason}\n") == 3
    assert not (tmp_path / "python.ran").exists()  # no backend was started


@pytest.mark.parametrize("backend", ["torch", "keras"])
def test_recording_on_gpus_that_are_not_there_is_status_3(backend: str, without_gpu: list[str], tmp_path: Path) -> None:
    flags = f"--backend={backend}", f"--out={tmp_path / 'out'}", BLOCK, "--devices=gpu:2", *without_gpu
    ended = program("record", *flags)
    said = f"parity.record: gpu:2: this machine has no GPU that {backend} can use\n"
    assert ended == (3, "", said)
    assert not (tmp_path / "python.ran").exists()
    assert not list((tmp_path / "out").iterdir())


def test_other_devices_are_not_skipped_without_a_gpu(without_gpu: list[str], tmp_path: Path) -> None:
    ended = compare(BLOCK, "--devices=cpu:2", "--quiet", "--json=-", *without_gpu)
    (case,) = json.loads(ended.out)["cases"]
    assert (ended.status, case["verdict"]) == (3, "error")
    assert (tmp_path / "python.ran").exists()


def test_recording_says_what_it_skips(tmp_path: Path) -> None:
    ended = program("record", "--backend=torch", f"--out={tmp_path}", HYBRID, "--torch-python=/nonexistent/python")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("simple_block/hybrid  skipped: hybrid trains replicas of 2 stages each")


# Backends that do not run, without a framework


def test_a_backend_that_cannot_start_is_status_3(tmp_path: Path) -> None:
    flags = [BLOCK, "--torch-python=/nonexistent/python"]
    ended = program("record", "--backend=torch", f"--out={tmp_path}", *flags)
    assert ended.status == 3
    assert ended.err.count("\n") == 1 and "1 of 1 case failed" in ended.err
    assert "/nonexistent/python" in ended.out


def test_backends_that_end_at_once_are_status_3() -> None:
    pythons = "--torch-python=true", "--keras-python=/nonexistent/python"
    ended = program("compare", BLOCK, *pythons, "--quiet", "--json=-")
    (case,) = json.loads(ended.out)["cases"]
    assert (ended.status, ended.err, case["verdict"]) == (3, "", "error")
    assert "torch: the process ended with status 0" in case["reason"]
    assert "/nonexistent/python" in case["reason"] and "python -m parity.record" in case["reason"]


@pytest.mark.parametrize(
    "args", [pytest.param(["compare", "--quiet"], marks=pytest.mark.slow), ["record", "--backend=torch", "--out=."]]
)
def test_a_backend_that_answers_with_something_else_is_status_3(args: list[str], tmp_path: Path) -> None:
    """An interpreter that prints a greeting, say."""
    args = [arg.replace("--out=.", f"--out={tmp_path}") for arg in args]
    ended = program(*args, BLOCK, "--torch-python=echo", "--keras-python=true")
    assert ended.status == 3
    assert "Traceback" not in ended.err
