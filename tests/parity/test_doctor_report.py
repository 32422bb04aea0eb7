"""What the doctor prints, in 80 columns too, and what it writes for programs."""

import io
import json

import msgspec
import pytest
from doctor_evidence import evidence, finding

from parity.core.clock import Time
from parity.doctor import report
from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding

TIME = Time(
    device="CPU (virtual)",
    steps=5,
    step=0.0123,
    forward=0.0041,
    loss=0.0002,
    backward=0.0059,
    update=0.0014,
    copies=7e-4,
)
INPUT = finding(
    "error",
    "input.device",
    "my_package/train.py:21",
    "input src (int64[10, 20]) is on cpu and the model on cuda:0: embedding fails at my_package/model.py:8.",
    'src = src.to("cuda:0")  # a line of code is not folded, however long it may become',
    at="encoder.embedding",
)
DID_NOT_END = "The step did not end.\nrank 0:\n  train.py:17 in step"
HANGS = finding("warning", "step.hangs", "train.py:17", DID_NOT_END, "", case="transformer/ddp")
GOLDEN = """\
torch, 2 steps observed on cuda:0, cuda:1: CPU (virtual)

error: input.device (torch) at encoder.embedding, my_package/train.py:21
  input src (int64[10, 20]) is on cpu and the model on cuda:0: embedding fails
  at my_package/model.py:8.
  fix: src = src.to("cuda:0")  # a line of code is not folded, however long it may become

warning: step.hangs (torch transformer/ddp) at train.py:17
  The step did not end.
  rank 0:
    train.py:17 in step

torch: step 12.3 ms on CPU (virtual), median of 5: forward 4.1, loss 0.2,
backward 5.9, update 1.4, copies 0.7
2 findings: 1 error, 1 warning
"""


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "PIPE_WIDTH", 80)


def virtual(**fields: object) -> Evidence:
    return evidence(gpus=2, physical=["CPU (virtual)"] * 2, **fields)


def shown(findings: list[Finding], *seen: Evidence) -> str:
    out = io.StringIO()
    report.show(report.Examination(findings, list(seen), [], ""), out)
    return out.getvalue()


def test_the_look_at_80_columns() -> None:
    assert shown([INPUT, HANGS], virtual(times=[TIME])) == GOLDEN


def test_the_document_is_json_with_all_fields() -> None:
    examination = report.Examination([INPUT], [virtual(times=[TIME], profile="p")], [], "")
    document = json.loads(msgspec.json.encode(report.document(examination)))
    assert list(document) == ["schema", "findings", "times", "environment"]
    assert document["schema"] == 1
    (finding,) = document["findings"]
    assert set(finding) == {"id", "severity", "where", "source", "message", "fix", "side", "case"}
    assert (finding["id"], finding["severity"]) == ("input.device", "error")
    assert document["times"][0]["forward"] == 0.0041 and document["times"][0]["side"] == "torch"
    devices = {"cuda:0": "CPU (virtual)", "cuda:1": "CPU (virtual)"}
    assert document["environment"] == [{"side": "torch", "case": "", "rank": 0, "devices": devices, "profile": "p"}]
