"""The file of a certificate: what it says, what it refuses, and that a recording is never lost silently."""

import re
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from synthetic import record

from parity import certify, compare
from parity.core.errors import TraceError, UsageError
from parity.pairs.recording import pack
from parity.trace import certificate
from parity.trace.certificate import Recording

MADE = Recording(date="2026-01-02", commit="", versions={"numpy": "0"}, reason="first recording")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A certificate of the numpy network's half of a case."""
    trace = record(tmp_path / "trace", "torch")
    certificate.write(trace.folder, tmp_path / "block.parity", certificate.described(trace, "python -m ...", [MADE]))
    return tmp_path / "block.parity"


def test_it_holds_the_trace_and_tells_of_it_in_text(file: Path, tmp_path: Path) -> None:
    told = certificate.unpack(file, tmp_path / "unpacked")
    for path in (path for path in (tmp_path / "trace").rglob("*") if path.is_file()):
        assert (tmp_path / "unpacked" / path.relative_to(tmp_path / "trace")).read_bytes() == path.read_bytes()
    assert (told.case, told.side, told.history) == ("simple_block/single", "torch", [MADE])
    lines = file.read_bytes().partition(certificate.ARCHIVE)[0].decode().splitlines()
    assert len(lines) > 20 and '"reason": "first recording"' in "\n".join(lines)
    assert {name for name in told.returned if "loss" in name} == {f"step-00000{step} loss" for step in range(3)}


def test_equal_traces_give_equal_files(file: Path, tmp_path: Path) -> None:
    again = record(tmp_path / "again", "torch")
    certificate.write(again.folder, tmp_path / "again.parity", certificate.described(again, "python -m ...", [MADE]))
    assert (tmp_path / "again.parity").read_bytes() == file.read_bytes()


def damaged(content: bytes, how: str) -> bytes:
    match how:
        case "a byte of the trace":
            return content[:-200] + bytes([content[-200] ^ 1]) + content[-199:]
        case "a word of the text":
            return content.replace(b'"torch"', b'"keras"', 1)
        case "truncated":
            return content[: len(content) // 2]
        case "text alone":
            return content.partition(certificate.ARCHIVE)[0]
        case "another schema":
            return content.replace(b'"certificate": 1', b'"certificate": 2', 1)
        case "a field more":
            return content.replace(b'"certificate": 1', b'"certificate": 1, "more": 2', 1)
        case "no certificate":
            return b"[pair]\nname = 'x'\n"
    return b""


@pytest.mark.parametrize(
    ("how", "said"),
    {
        "a byte of the trace": "is damaged or truncated",
        "a word of the text": "is damaged or truncated",
        "truncated": "is damaged or truncated",
        "text alone": "is damaged or truncated",
        "another schema": "has schema 2, this version reads 1",
        "a field more": "its text is damaged",
        "no certificate": "is no certificate",
        "empty": "is no certificate",
    }.items(),
)
def test_what_is_no_certificate_is_one_clear_line(how: str, said: str, file: Path) -> None:
    file.write_bytes(damaged(file.read_bytes(), how))
    with pytest.raises(TraceError, match=re.escape(said)) as raised:
        certificate.read(file)
    assert str(raised.value).startswith(f"{file}: ") and "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        certificate.read(tmp_path / "none.parity")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        certificate.read(tmp_path)


def test_no_name_in_the_archive_leads_out_of_the_folder(tmp_path: Path) -> None:
    """A made-up certificate whose digest is right."""
    trace = record(tmp_path / "trace", "torch")
    told = certificate.described(trace, "", [MADE])
    content = certificate.ARCHIVE + b"no archive"
    digest = certificate._digest(told, content)
    (tmp_path / "x.parity").write_bytes(certificate._text(msgspec.structs.replace(told, digest=digest)) + content)
    with pytest.raises(TraceError, match="cannot be unpacked"):
        certificate.unpack(tmp_path / "x.parity", tmp_path / "out")


def refused(capsys: pytest.CaptureFixture[str], program: object, *flags: str) -> str:
    """What a program says that refuses its flags."""
    with pytest.raises((SystemExit, UsageError)) as raised:
        program(flags)  # type: ignore[operator]
    if isinstance(raised.value, UsageError):
        return str(raised.value)
    assert raised.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--out=x.parity"], "a certificate is of one case: received"),
        (["--out=x.parity", "--case=simple_block/*"], "expected --case=NAME or --pair=FILE"),
        (["--case=simple_block/single"], "--out"),
        (["--out=x.parity", "--case=simple_block/single", "--update"], "--update needs --reason=TEXT"),
        (["--out=x.parity", "--pair=none.toml"], "none.toml: cannot be read"),
        (["--out=x.parity", "--pair=a.toml", "--backend=keras"], "is that of its reference"),
    ],
)
def test_wrong_flags_of_certify(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, certify.main, *flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--steps=2"], "takes no flags that choose or change cases"),
        (["--case=simple_block/single"], "takes no flags that choose or change cases"),
        (["--keras=a:b", "--torch=c:d"], "takes one of --keras, --torch and --pair"),
        (["a", "b"], "takes no flags that choose or change cases"),
    ],
)
def test_wrong_flags_beside_a_certificate(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, compare.main, "--certificate=x.parity", *flags)


def test_a_built_in_case_has_no_builder(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, compare.main, f"--certificate={file}", "--keras=a:build", "--quiet")
    assert "is of the built-in case simple_block/single" in said


def test_nothing_is_written_over_without_a_reason(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    assert "exists already" in refused(capsys, certify.main, "--case=simple_block/single", f"--out={file}")
    assert file.read_bytes() == before


PAIR = '[pair]\nname = "x"\ntorch = "a:build"\nkeras = "b:build"\n[inputs.x]\nshape = [2, 3]\n'


def test_a_repository_with_changes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True)

    (tmp_path / "x.toml").write_text(PAIR)
    (tmp_path / "a.py").write_text("")
    git("init")
    flags = [f"--pair={tmp_path / 'x.toml'}", f"--out={tmp_path / 'x.parity'}"]
    git("add", "x.toml")
    git("commit", "-m", "first")
    assert "1 file changed since the last commit, e.g. a.py" in refused(capsys, certify.main, *flags)
    git("add", ".")
    git("commit", "-m", "second")
    (tmp_path / "other.parity").write_text("a certificate that was recorded just now")
    (tmp_path / "x.toml").write_text(PAIR.replace("[2, 3]", "[2, 4]"))
    (tmp_path / "notes.txt").write_text("not part of what is recorded")
    assert "1 file changed since the last commit, e.g. x.toml" in refused(capsys, certify.main, *flags)
    assert not (tmp_path / "x.parity").exists()


def test_inputs_that_lie_elsewhere_are_refused(tmp_path: Path) -> None:
    from parity.pairs import file as files
    from parity.runtime import survey

    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3)))
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "x.toml").write_text(f'{PAIR}npz = "../x.npz"\n')
    folder = tmp_path / "trace" / "survey"
    folder.mkdir(parents=True)
    survey.write(folder, survey.Survey(side="torch", modules=[], weights=[], called=[]))
    for name in (survey.WEIGHTS, survey.ACTIVATIONS):
        survey.keep(folder / name, [])
    with pytest.raises(UsageError, match="expected a file below the pair's own folder"):
        pack(files.load(tmp_path / "pair" / "x.toml"), tmp_path / "trace")
