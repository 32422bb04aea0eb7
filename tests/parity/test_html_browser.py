"""The HTML report as a browser shows it: on a phone, a desktop and paper, light and dark, with and without script."""

import contextlib
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_samples import HOSTILE, hostile, sample
from slow import sampled

from parity.report.html import comparison

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `test`")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")

WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = ("light", "dark")
READABLE = 4.5  # WCAG's least contrast of text
CONTRAST = """() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = channels(getComputedStyle(each).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const light = (color) => {
    const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = color.slice(0, 3).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return [...document.querySelectorAll("h1, h2, p, a, td, th, .badge, .cell, summary, code, pre")]
    .filter((each) => each.checkVisibility() && each.textContent.trim()).map((each) => {
      const [one, other] = [light(channels(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => b - a);
      return [(one + 0.05) / (other + 0.05), each.className + ": " + each.textContent.trim().slice(0, 40)];
    }).sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with (
        playwright.sync_playwright() as started,
        contextlib.closing(started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])) as launched,
    ):
        yield launched


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "report.html").write_text(comparison.render(sample(folder)))
    return folder / "report.html"


@contextlib.contextmanager
def opened(browser: Any, file: Path, anchor: str = "", **context: Any) -> Iterator[Any]:
    """Open a page; afterwards it must have asked for nothing but itself, and have printed no error."""
    requests: list[str] = []
    messages: list[str] = []
    with contextlib.closing(browser.new_context(**context)) as made:
        page = made.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(f"{file.as_uri()}{anchor}")
        yield page
        assert [each for each in requests if not each.startswith(("file:", "data:"))] == []
        assert len([each for each in requests if each.startswith("file:")]) == 1
        assert messages == []


def size(width: int, height: int = 900) -> dict[str, int]:
    return {"width": width, "height": height}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", sampled((pytest.param(width, id=name) for name, width in WIDTHS.items()), "phone"))
def test_a_page_fits_its_width_and_is_readable(width: int, scheme: str, browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, viewport=size(width), color_scheme=scheme) as page:
        for case in page.locator("details").all():
            case.evaluate("each => { each.open = true; }")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        least, where = page.evaluate(CONTRAST)
        assert least >= READABLE, where
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 3 * 128) == (scheme == "dark")


def test_the_first_screen_shows_verdict_place_cause_and_command(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, viewport=size(1280)) as page:
        assert page.locator("h1").inner_text().endswith("do not compute the same in 1 of 2 cases.")
        for words in ("First to look at: pair/mine", "layer_norm.epsilon", "python -m parity.compare --pair=mine.toml"):
            assert page.get_by_text(words).first.bounding_box()["y"] < 900, words


def test_a_filter_leaves_what_was_asked_for(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, "#case-2", viewport=size(1280)) as page:
        case = page.locator("#case-2")
        rows = case.locator(".rows tbody tr")
        total = rows.count()
        case.get_by_label("diverged").check()
        kept = case.locator(".rows tbody tr:visible")
        assert 0 < kept.count() < total
        assert all("✗" in row.inner_text() for row in kept.all())
        case.get_by_label("Pattern").fill("linear1*bias")
        assert kept.count() > 0 and all("linear1.bias" in row.inner_text() for row in kept.all())
        assert case.locator("output").inner_text() == f"{kept.count()} tensor{'' if kept.count() == 1 else 's'}"
        case.get_by_label("Pattern").fill("no such (name")
        assert kept.count() == 0
        case.get_by_label("Pattern").fill("")
        case.get_by_label("all", exact=True).check()
        assert case.locator(".rows tbody tr:not([hidden])").count() == total


def test_a_cell_of_the_matrix_opens_its_case(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, viewport=size(1280)) as page:
        assert not page.locator("#case-1 .body").is_visible()
        page.locator(".matrix a.match").click()
        page.locator("#case-1 .body").wait_for()  # the browser tells the page of its new address a little later
        assert page.locator("#case-1 .body").is_visible()


def test_everything_is_reached_by_keyboard(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, viewport=size(1280)) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.locator(".skip").bounding_box()["x"] > 0  # it is seen once it has the focus
        wanted, reached = {"overview A", "case-1 SUMMARY", "case-1 DIV", "case-2 INPUT"}, set()
        for _ in range(60):
            if wanted <= reached:
                break
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate("document.activeElement.closest('[id]')?.id + ' ' + document.activeElement.tagName")
            )
            if page.evaluate("document.activeElement.matches('#case-1 > summary')"):
                page.keyboard.press("Enter")
        assert page.locator("#case-1 .body").is_visible()
        assert wanted <= reached


@pytest.mark.slow
def test_without_script_the_page_is_complete(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, viewport=size(1280), java_script_enabled=False) as page:
        assert page.get_by_text("First to look at").is_visible()
        assert not page.locator("form.filter").first.is_visible()  # nothing is shown that does not work
        page.locator("#case-1 > summary").click()
        assert page.locator("#case-1 svg").first.is_visible()
        assert page.locator("#case-1 .rows tbody tr:visible").count() > 0
        with page.expect_download() as download:
            page.locator("#download").click()
        assert download.value.suggested_filename == "report.json.gz"


@pytest.mark.slow
def test_on_paper_every_fold_is_open_in_black_on_white(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, viewport=size(794), color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("#case-1 svg").first.bounding_box()["height"] > 100
        assert page.locator("#case-1 .resolved pre").bounding_box()["height"] > 100
        assert not page.locator("nav").is_visible() and not page.locator("form.filter").first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 794
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_names_with_markup_run_nothing(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(comparison.render(hostile()))
    with opened(browser, file, viewport=size(390)) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        assert page.title().startswith("Parity report: ")
        assert page.locator("img").count() == 0 and page.locator("script").count() == 1
        for name in HOSTILE:
            assert page.get_by_text(name).first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_script_that_is_not_the_page_s_own_does_not_run(browser: Any, page_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "injected.html"
    added = (
        '<script>document.title = "run"</script><img src="https://example.invalid/x.png" onerror="document.title = 1">'
    )
    file.write_text(page_file.read_text().replace("</main>", f"{added}</main>"))
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.goto(file.as_uri())
        assert page.title().startswith("Parity report: ")
        assert len([each for each in refused if "Content Security Policy" in each]) >= 2


def test_the_download_is_the_report(browser: Any, page_file: Path, tmp_path: Path) -> None:
    with opened(browser, page_file) as page:
        with page.expect_download() as download:
            page.locator("#download").click()
        download.value.save_as(tmp_path / "report.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "report.json.gz").read_bytes()))["summary"]["diverged"] == 1
