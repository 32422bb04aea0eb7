"""Make the pictures of the HTML report: `python docs/report_picture.py`, from a checkout with the package installed.

They show the page of a real run: of the command below, in a folder that holds the README's files. It needs the package
playwright, and Chromium.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import picture
from playwright.sync_api import Page, sync_playwright

COMMAND = (
    "python -m parity.compare --case=two_linear/* --case=transformer/ddp --pair=mlp.toml --html=report.html --quiet"
)
IMAGES = picture.PICTURE.parent
WIDTH, HEIGHT = 1200, 1330  # of the first screen, with the table of cases


def run(folder: Path) -> Path:
    """Run the command in a folder, and return the page."""
    for name, text in picture.FILE.findall((picture.ROOT / "README.md").read_text()):
        (folder / name).write_text(text)
    ended = subprocess.run(
        [sys.executable, *COMMAND.split()[1:]],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(picture.ROOT)}, check=False,
    )  # fmt: skip
    if ended.returncode != 1:  # the port in the README is wrong on purpose
        raise SystemExit(f"{COMMAND}: expected status 1, received {ended.returncode}")
    return folder / "report.html"


def take(page: Page) -> None:
    """Take the pictures of an open page: its first screen, and the noise band of the transformer."""
    page.screenshot(path=IMAGES / "report.png")
    case = page.locator("details.case", has_text="transformer/ddp")
    case.evaluate("each => { each.open = true; }")
    case.locator("figure").first.screenshot(path=IMAGES / "noise_band.png")


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        report = run(Path(folder))
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.as_uri())
        take(page)
        browser.close()


if __name__ == "__main__":
    main()
