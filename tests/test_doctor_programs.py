"""The doctor on small programs as people write them: it names the fault, its module and its line, and nothing else.

The programs are in tests/programs/, faulty and corrected (corrected.py there); they say "cuda:1" and "/GPU:1", and
there is no GPU. All programs of a side run in one process, as far as they leave it alive, and both sides at the same
time.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from doctor_programs_table import CLEAN, HANGING, PROGRAMS, Clean, Faulty
from programs.corrected import is_told_in_place
from slow import WAIT, sampled

from parity.core.inputs import parse
from parity.doctor.__main__ import examined
from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding
from parity.runtime.backend import Backend, running
from parity.runtime.environment import environment
from parity.runtime.job import DoctorJob

ROOT = Path(__file__).parents[1]
PATIENCE = 5.0  # seconds for a step that takes milliseconds
Examined = tuple[list[Finding], list[Evidence]]
Key = tuple[str, str, bool]  # a program's side and name, and whether its corrected twin is meant


def source_file(program: Faulty | Clean) -> Path:
    file = program.name.partition(".")[0]
    return Path(__file__).parent / "programs" / program.side / f"{file}.py"


def function(program: Faulty | Clean, name: str, right: bool) -> str:
    """As a flag names it: the corrected twin's own if it has one; "" for a program without a step."""
    path, (_, _, own) = source_file(program), program.name.partition(".")
    text = path.read_text()
    names = [{"build": f"build_{own}", "step": own}[name], name] if own else [name]
    wanted = [each for given in names for each in ([f"{given}_right"] if right else []) + [given]]
    found = next((each for each in wanted if is_defined(text, each)), "")
    if not found:
        return ""
    if right and is_told_in_place(text):
        return f"tests.programs.corrected:{program.side}__{path.stem}__{found}"
    return f"tests.programs.{program.side}.{path.stem}:{found}"


def is_defined(text: str, name: str) -> bool:
    return bool(re.search(rf"^(def {name}\(|(\w+ = )*{name} = |from .* import .*\b{name}\b)", text, re.MULTILINE))


def fault(program: Faulty) -> str:
    """Its line."""
    path, own = source_file(program), program.name.partition(".")[2]
    mark = f"# fault: {own}" if own else "# fault"
    (number,) = [number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith(mark)]
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{number}"


def serious(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity != "note"]


def order(program: Faulty | Clean) -> tuple:
    """A backend's processes are started anew for another number of devices."""
    return program.devices, program.ranks


def named(programs: list) -> list:
    return [pytest.param(program, id=f"{program.side}-{program.name}") for program in programs]


def examine(backend: Backend, program: Faulty | Clean, right: bool, folder: Path) -> Examined:
    """What the doctor says of a program, or of its corrected twin, and what it saw."""
    job = job_of(program, function(program, "build", right), function(program, "step", right))
    return examined(backend, job, folder)


def job_of(program: Faulty | Clean, build: str, step: str) -> DoctorJob:
    """An examination of these functions, on the inputs and devices of the program."""
    return DoctorJob(
        folder="",
        build=build,
        step=step,
        inputs=[parse(text) for text in program.inputs],
        devices=program.devices,
        ranks=program.ranks,
        timed=False,
    )


@pytest.fixture(scope="module")
def examinations(request, backends, tmp_path_factory) -> Iterator[dict[Key, "Future[Examined]"]]:
    """Those that the selected tests ask for, begun at once: a thread for each side."""
    folder = tmp_path_factory.mktemp("programs")
    items = [item for item in request.session.items if item.module is request.module]
    programs = [item.callspec.params["program"] for item in items if "examinations" in item.fixturenames]
    asked = {(program.side, program.name): program for program in programs}.values()
    with contextlib.ExitStack() as stack:
        begun = {}
        for backend in backends:
            pool = ThreadPoolExecutor(max_workers=1)
            stack.callback(pool.shutdown, cancel_futures=True)
            for program in sorted(asked, key=order):
                for right in [False, True] if isinstance(program, Faulty) else [True]:
                    if program.side == backend.name:
                        name = f"{backend.name}-{program.name}-{right}"
                        begun[backend.name, program.name, right] = pool.submit(
                            examine, backend, program, right, folder / name
                        )
        yield begun


def check(findings: list[Finding], program: Faulty) -> None:
    """The fault is found where it is, and it alone."""
    (found,) = [finding for finding in findings if finding.id == program.finding]
    assert found.where == program.where, found
    assert not program.placed or found.source == fault(program), found
    assert found.message
    assert found.fix or found.id in ("step.raised", "step.hangs", "gpu.not_pretended"), found
    assert {finding.id for finding in serious(findings)} <= {program.finding}, findings


@pytest.mark.parametrize(
    "program",
    sampled(named(PROGRAMS), "torch-placed.lopsided", "torch-losses.loss_by_hand", "keras-losses.loss_by_hand"),
)
def test_a_fault_is_named_and_its_correction_is_clean(program, examinations):
    check(examinations[program.side, program.name, False].result()[0], program)
    assert serious(examinations[program.side, program.name, True].result()[0]) == []


@pytest.fixture(scope="module")
def mender(tmp_path_factory) -> Iterator[tuple[list[Backend], Path]]:
    """Processes that find programs in a folder of their own, and the folder."""
    folder = tmp_path_factory.mktemp("mended")
    backends = [Backend(side, "", folder) for side in ("torch", "keras")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        with running(backends):
            yield backends, folder


def mended(text: str, finding: Finding) -> str:
    """The program with the advice applied at the place that the finding names."""
    lines, number = text.splitlines(), int(finding.source.rpartition(":")[2]) - 1
    indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    fix, _, where = finding.fix.partition("  # ")
    if where == "before this line":
        lines.insert(number, indent + fix)
    elif where == "after this line":
        lines.insert(number + 1, indent + fix)
    elif moved := re.fullmatch(r"moved (before|after) line (\d+)", where):
        target = int(moved[2]) - (moved[1] == "before")
        lines[number] = f"{indent}pass"
        behind = lines[target - (moved[1] == "after")]
        deeper = "    " * behind.rstrip().endswith(":")
        lines.insert(target, behind[: len(behind) - len(behind.lstrip())] + deeper + fix)
    else:
        lines[number] = indent + finding.fix
    return "\n".join(lines) + "\n"


def trained(evidences: list[Evidence]) -> list:
    """The learning rates, and the size of the parameters before and after the updates of each step."""
    steps = [step for evidence in evidences for step in evidence.steps]
    sizes = [[(seen.rate, seen.before, seen.after) for seen in step.optimizers if seen.stepped] for step in steps]
    return [[f"{number or 0.0:.6g}" for size in step for number in size] for step in sizes]


@pytest.mark.slow
@pytest.mark.parametrize("program", named([program for program in PROGRAMS if program.mended]))
def test_the_advice_mends_the_program(program, examinations, mender):
    findings, _ = examinations[program.side, program.name, False].result()
    (found,) = [finding for finding in findings if finding.id == program.finding]
    backends, folder = mender
    name = f"mended_{program.side}_{program.name}".replace(".", "_")
    (folder / program.side).mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(mended(source_file(program).read_text(), found))
    (backend,) = [backend for backend in backends if backend.name == program.side]
    build, step = (function(program, which, False).rpartition(":")[2] for which in ("build", "step"))
    job = job_of(program, f"{name}:{build}", f"{name}:{step}" if step else "")
    findings, evidences = examined(backend, job, folder / program.side / program.name)
    assert serious(findings) == [], found
    right = trained(examinations[program.side, program.name, True].result()[1])
    assert not program.same or trained(evidences) == right, found


@pytest.mark.slow
@pytest.mark.parametrize("program", named(CLEAN))
def test_a_program_without_a_fault_is_clean(program, examinations):
    assert serious(examinations[program.side, program.name, True].result()[0]) == []


@pytest.mark.slow
@pytest.mark.parametrize("program", named([each for each in CLEAN if each.name == "prefetched"]))
def test_streams_are_passed_over_and_told_in_one_note(program, examinations):
    (note,), _ = examinations[program.side, program.name, True].result()
    lines = source_file(program).read_text().splitlines()
    line = lines.index("    model.copies = torch.cuda.Stream()") + 1
    assert (note.severity, note.id) == ("note", "gpu.not_pretended")
    assert note.source.endswith(f"prefetched.py:{line}")
    for call in ("torch.cuda.Stream", "torch.cuda.Event at", "torch.cuda.stream at", "torch.cuda.current_stream at"):
        assert call in note.message
    assert "a missing wait between streams is not found" in note.message


@pytest.mark.slow
@pytest.mark.parametrize("program", named(HANGING))
def test_a_program_that_hangs_is_told_who_waits_where(program, tmp_path):
    backend = Backend(program.side, "", tmp_path)
    with running([backend]):
        assert serious(examine(backend, program, True, tmp_path / "right")[0]) == []
        backend.patience = PATIENCE
        check(examine(backend, program, False, tmp_path / "faulty")[0], program)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "right"), [("batches.cpu_batch", False), ("two_stages", True)])
def test_the_command_line(name, right, tmp_path):
    """Status 1 and the finding for a faulty program, status 0 for a corrected one of two ranks."""
    (program,) = [each for each in PROGRAMS if (each.side, each.name) == ("torch", name)]
    flags = [f"--torch={function(program, 'build', right)}", f"--step={function(program, 'step', right)}"]
    flags += [*(f"--input={text}" for text in program.inputs), f"--ranks={program.ranks}", "--json=-"]
    ended = subprocess.run(
        [sys.executable, "-m", "parity.doctor", *flags, f"--devices=cpu:{program.devices}"],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    found = [finding for finding in json.loads(ended.stdout)["findings"] if finding["severity"] != "note"]
    assert [finding["id"] for finding in found] == ([] if right else [program.finding]), ended.stderr
    assert ended.returncode == (0 if right else 1)
