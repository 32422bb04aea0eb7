"""docs/report.schema.json is the schema of the JSON report: reports as they are written fit it, others do not."""

import importlib.util
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from parity.core.errors import UsageError
from parity.pairs import file
from parity.pairs.compare import compared
from parity.pairs.vary.outcome import OTHER_BATCHES
from parity.report.output import write_json
from parity.results import Against, Report, failed

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
PAIRS = ROOT / "tests" / "pairs"


def test_the_file_is_made_of_the_structs():
    spec = importlib.util.spec_from_file_location("report_schema", ROOT / "docs" / "report_schema.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert json.loads(msgspec.json.encode(script.schema())) == SCHEMA, "run python docs/report_schema.py"


@pytest.fixture(scope="module")
def written(backends, tmp_path_factory) -> dict:
    """A report of a pair that matches, one that does not, one that cannot be run, as JSON; with a baseline by hand."""
    folder = tmp_path_factory.mktemp("schema")
    report = Report(environment={"torch": {"torch": "2"}})
    for number, overrides in enumerate([[], ["train.steps=2", 'pair.keras_kwargs.activation="tanh"']]):
        pair = file.load(PAIRS / "mlp.toml", overrides)
        report.add(compared(pair, backends, folder / str(number), not overrides))
    report.cases[0].against_single = {"torch": Against(worst_bits=float("nan"))}
    report.add(failed("pair/none", UsageError("there is no such file")))
    write_json(report, str(folder / "report.json"))
    return json.loads((folder / "report.json").read_text())


def test_reports_fit_the_schema(written):
    VALIDATOR.check_schema(SCHEMA)
    VALIDATOR.validate(written)
    assert [case["verdict"] for case in written["cases"]] == ["match", "diverged", "error"]
    assert OTHER_BATCHES in [each["name"] for each in written["cases"][0]["variations"]]
    assert written["cases"][1]["first_divergence"]
    assert [cause["id"] for cause in written["cases"][1]["causes"]] == ["activation.kind"]


@pytest.mark.parametrize("spoil", [
    lambda report: report.pop("summary"),
    lambda report: report.update(schema=2),
    lambda report: report["cases"][0].update(verdict="equal"),
    lambda report: report["cases"][0]["checks"]["loss"].update(compared="three"),
    lambda report: report["cases"][1]["first_divergence"].pop("step"),
])  # fmt: skip
def test_other_documents_do_not(written, spoil):
    other = json.loads(json.dumps(written))
    spoil(other)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(other)
