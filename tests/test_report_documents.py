"""The workflow and the pictures of docs/report.md: what they are said to be."""

import re
from pathlib import Path

import pytest
import yaml
from PIL import Image

from parity import compare

DOCS = Path(__file__).parents[1] / "docs"
WORKFLOW = yaml.safe_load((DOCS / "parity.yml").read_text())
STEPS = WORKFLOW["jobs"]["compare"]["steps"]


def test_the_workflow_calls_the_comparison_with_flags_that_it_has(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^python -m parity\.compare (.*) \|\| status", STEPS[3]["run"], re.MULTILINE)
    args = compare._parse(line.split(), "parity.compare")
    assert (args.html, args.junit, args.sarif) == ("report.html", "report.xml", "report.sarif")


def test_the_workflow_keeps_and_posts_what_the_comparison_writes():
    used = {step.get("uses", "").partition("@")[0]: step.get("with", {}) for step in STEPS}
    assert used["actions/upload-artifact"]["path"].split() == ["report.html", "report.xml"]
    assert used["github/codeql-action/upload-sarif"]["sarif_file"] == "report.sarif"
    assert "--body-file summary.md" in STEPS[-1]["run"] and "summary.md" in STEPS[3]["run"]
    assert all("cancelled()" in step["if"] for step in STEPS[4:])  # a divergence fails the job, and is posted
    assert WORKFLOW["permissions"] == {"contents": "read", "security-events": "write", "pull-requests": "write"}


@pytest.mark.parametrize("name", ["report", "noise_band"])
def test_the_pictures_can_be_read(name):
    with Image.open(DOCS / "images" / f"{name}.png") as picture:
        assert picture.width > 900 and picture.height > 300
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20  # not a blank page
