"""The flags --repair and --reproduce, what is printed of them, and what is said where no edit is known."""

from pathlib import Path

import pytest
from causes_made import made as a_cause
from msgspec.structs import replace

from parity import compare
from parity.core.errors import UsageError
from parity.pairs.causes import sources
from parity.pairs.file import from_flags
from parity.repair import search
from parity.repair.candidates import Port, edits, why_none
from parity.report.terminal import text as explained
from parity.results import CaseResult, Repair, TriedEdit
from parity.runtime.survey import Frame, Made, Module, Survey, Weight
from parity.trace.mapping import Entry, Mapping, Match, Matching, PairContext

FLAGS = ["--torch=a:build", "--keras=b:build", "--input=x=float32[2]"]


@pytest.mark.parametrize("flag", ["--repair=it.diff", "--reproduce=out"])
@pytest.mark.parametrize("others", [[], ["--pair=a.toml", "--pair=b.toml"], [*FLAGS, "--case=*"], ["one", "two"]])
def test_they_are_for_one_pair(flag: str, others: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        compare._parse([flag, *others], "parity.compare")
    assert ended.value.code == 2 and list(tmp_path.iterdir()) == []
    assert others == ["one", "two"] or "is for one pair" in capsys.readouterr().err


def test_the_diff_must_be_writable_and_begins_empty(tmp_path: Path) -> None:
    (tmp_path / "it.diff").write_text("of an earlier run")
    compare._parse([f"--repair={tmp_path}/it.diff", *FLAGS], "parity.compare")
    assert (tmp_path / "it.diff").read_bytes() == b""
    with pytest.raises(UsageError, match=r"--repair=.*none/it.diff: cannot be written"):
        compare._parse([f"--repair={tmp_path}/none/it.diff", *FLAGS], "parity.compare")


def made(path: Path, line: int = 3) -> Made:
    frame = Frame(file=str(path), line=line, column=0, end_line=line, end_column=9)
    return Made(source=f"{path}:{line}", calls=[frame], positional=["epsilon"], keywords=["epsilon"])


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """A port of two layers, of which one is matched by what it returns and the other by its weight."""
    modules = [
        Module(path="norm", kind="layer_norm", made=made(tmp_path / "port.py")),
        Module(path="dense", kind="linear", made=made(Path("/elsewhere/port.py"))),
    ]
    weight = Weight(name="dense/kernel", shape=(2, 2), dtype="float32", module="dense", role="kernel", trainable=True)
    keras = Survey(side="keras", modules=modules, weights=[weight], called=[], optimizer=made(tmp_path / "own.py", 7))
    match = Match(torch="1", keras="norm#1", axes=[0, 1], by="order")
    mapping = Mapping(entries=[Entry(torch=["0.weight"], keras=["dense/kernel"])])
    context = PairContext(search=[], mapping=mapping, matching=Matching(matches=[match]))
    return Port(tmp_path, from_flags("a:build", "b:build", ["x=float32[2]"]), keras, context)


@pytest.mark.parametrize(
    ("cause", "where", "why"),
    [
        ("unknown", "1", "the cause has no name"),
        ("batch_norm.running_variance", "1", "no argument of Keras's sets it"),
        ("layer_norm.epsilon", "5", "no layer of Keras's is known to correspond to 5"),
        ("linear.bias", "0", "/elsewhere/port.py:3 is outside of the folder that is repaired"),
        ("layer_norm.epsilon", "1", "port.py:3: it was not found what sets epsilon there"),
        ("sgd.momentum", "0.weight", "own.py:7: it was not found what sets momentum there"),
    ],
)
def test_why_there_is_no_edit(cause: str, where: str, why: str, port: Port) -> None:
    assert why_none(a_cause(cause, where, torch=1, keras=2), port) == why


def test_edits_of_what_an_experiment_has_changed(port: Port, tmp_path: Path) -> None:
    """An attribute of a layer by the layer's path; a constant in the code by its line."""
    (tmp_path / "port.py").write_text("\n\nNorm(0.25)\n\n\ndef act(x):\n    return x * 1.7\n")
    change = {"side": "keras", "name": "epsilon", "kind": "attribute", "of": "x", "before": 0.25, "after": 0.5}
    other = {"side": "torch", "name": "eps", "kind": "attribute", "before": 0.5, "after": 0.25, "path": "1"}
    frame = Frame(file=f"{tmp_path}/port.py", line=3, column=0, end_line=3, end_column=10)
    norm = Module(path="act/norm", kind="x", made=Made(source="", calls=[frame], positional=["epsilon"]))
    port = port._replace(keras=replace(port.keras, modules=[norm]))
    attribute = a_cause("x.epsilon", "9", [change | {"path": "act/norm", "source": ""}, other])
    assert [edit.source for edit in edits(attribute, port)] == [("Norm(0.25)", "Norm(0.5)")]
    constant = {"name": "1.7", "kind": "constant", "of": "", "before": 1.7, "after": 1.702, "path": "", "owner": "act"}
    cause = a_cause("code.constant", "9", [change | constant | {"source": f"{tmp_path}/port.py:7"}])
    assert [edit.source for edit in edits(cause, port)] == [("return x * 1.7", "return x * 1.702")]


def test_what_a_framework_makes_of_the_user_s_line_is_set_on_that_line(port: Port, tmp_path: Path) -> None:
    """A Bidirectional makes a copy of its GRU, and that makes its cell."""
    (tmp_path / "port.py").write_text('Bidirectional(GRU(4, activation="relu"))\n')
    copied = Module(path="both/gru", kind="gru", made=Made(source=f"{tmp_path}/port.py:1", positional=["units"]))
    cell = Module(path="both/gru/cell", kind="gru", made=None)
    port = port._replace(keras=replace(port.keras, modules=[copied, cell]))
    change = {"side": "keras", "name": "activation", "kind": "callable", "of": "gru", "before": "relu", "after": "tanh"}
    cause = a_cause("gru.activation", "9", [change | {"path": "both/gru/cell", "source": ""}])
    assert [edit.source[1] for edit in edits(cause, port)] == ["Bidirectional(GRU(4, activation='tanh'))"]


def test_a_library_s_layer_is_set_by_the_argument_of_the_layer_around_it(port: Port, tmp_path: Path) -> None:
    (tmp_path / "port.py").write_text("Backbone(layers=2, layer_norm_epsilon=0.25)\n")
    frame = Frame(file=f"{tmp_path}/port.py", line=1, column=0, end_line=1, end_column=43)
    around = Made(source=f"{tmp_path}/port.py:1", calls=[frame], keywords=["layers", "layer_norm_epsilon"])
    inner = Made(source=f"{tmp_path}/port.py:1", positional=["epsilon"], keywords=["epsilon"])
    modules = [Module(path="", kind="x", made=around), Module(path="norm", kind="layer_norm", made=inner)]
    port = port._replace(keras=replace(port.keras, modules=modules))
    (change,) = edits(a_cause("layer_norm.epsilon", "1", torch=0.5, keras=0.25), port)
    assert change.source[1] == "Backbone(layers=2, layer_norm_epsilon=0.5)"


def test_causes_get_the_line_of_their_layer(port: Port, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = (("layer_norm.epsilon", "1"), ("linear.bias", "0"), ("sgd.momentum", "0.weight"), ("loss.sum", "loss"))
    result = CaseResult(case="pair/x", verdict="diverged", causes=[a_cause(name, at) for name, at in names])
    result.causes.append(a_cause("relu.slope", "1", source="known.py:1"))
    sources.add_sources(result, port.keras, port.context)
    lines = [cause.source for cause in result.causes]
    assert lines == ["port.py:3", "/elsewhere/port.py:3", "own.py:7", "", "known.py:1"]


def test_the_pair_moves_into_the_copy(tmp_path: Path) -> None:
    user, other, new = tmp_path / "user", tmp_path / "other", tmp_path / "new"
    pair = from_flags("a:build", "b.c:build", ["x=float32[2]"])._replace(
        search=[str(user / "deep"), str(user), str(other)], path=user / "deep" / "it.toml"
    )
    moved = search.moved(pair, user, new, {"epsilon": 1})
    assert moved.search == [str(new / "deep"), str(new), str(other)] and moved.path == new / "deep" / "it.toml"
    assert moved.case.model.keras_kwargs == {"epsilon": 1} and pair.case.model.keras_kwargs == {}
    (user / "b").mkdir(parents=True)
    assert search.root(pair) == user  # where the port's package lies


def test_what_is_printed() -> None:
    edit = TriedEdit(
        file="port.py", line=3, cause="relu.slope", where="1", before="Relu(2)", after="Relu(0)", accepted=True
    )
    case = CaseResult(case="pair/x", verdict="diverged", reproduced=["a.py: 0"])
    case.repair = Repair(file="it.diff", root=str(Path.cwd()), verdict="match", edits=[edit], left=["b at c: d"])
    text = explained(case)
    assert (
        "  reproduced: a.py: 0\n  repair: relu.slope at 1, port.py:3: accepted\n    - Relu(2)\n    + Relu(0)\n" in text
    )
    assert "  repair: b at c: d\n  repair: match with 1 edit; to make it, patch -p1 < it.diff" in text
    edit.accepted, edit.why = False, "no good"
    assert "port.py:3: refused: no good\n" in explained(case)
    assert "  repair: no edit was accepted, and it.diff is empty" in explained(case)
