"""Put a page together: its frame, its style and script, its sections, and the JSON document within it.

The Content-Security-Policy names the digests of the one style sheet and the one script: nothing else is applied, run
or loaded. Without the script the page is complete, because it only filters and folds.
"""

import base64
import gzip
import hashlib
from functools import cache, partial
from importlib import resources
from typing import Any, NamedTuple

import jinja2
import msgspec
from markupsafe import Markup

from parity import __version__
from parity.core.wording import agree, count
from parity.report import words
from parity.report.output import as_json

NONE = "-"  # where a number would stand
Section = tuple[str, str, Markup]  # its anchor, its heading, and its content
POLICY = "default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


class Banner(NamedTuple):
    """What stands at the top of a page: the verdict with its mark, in a sentence, and the command that was run."""

    verdict: str
    mark: str
    sentence: str
    command: str


def render(title: str, banner: Banner, sections: list[Section], document: msgspec.Struct | dict[str, Any]) -> str:
    """Return the page; `document` is the JSON report that can be downloaded from it."""
    style, script = _text("style.css"), _text("script.js")
    return part(
        "page",
        title=title,
        banner=banner,
        sections=sections,
        style=Markup(style),
        script=Markup(script),
        policy=POLICY.format(style=_digest(style), script=_digest(script)),
        download=base64.b64encode(gzip.compress(as_json(document), mtime=0)).decode(),
        version=__version__,
    )


def part(template: str, **context: Any) -> Markup:
    """Return a rendered template; every value is escaped unless it is markup already."""
    return Markup(_environment().get_template(f"{template}.html.j2").render(**context))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("parity.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bits": partial(_number, "z.1f"),
        "exact": partial(_number, "z.17g"),
        "short": partial(_number, "z.6g"),
        "power": lambda value: NONE if value is None else "0" if value == 0 else f"{value:.1e}",
        "readable": lambda value: msgspec.json.format(msgspec.json.encode(value), indent=2).decode(),
        "seconds": lambda value: NONE if value is None else f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms",
        "counted": count,
        "agree": agree,
        "meaning": words.meaning,
        "sides": words.sides_of,
        "when": words.when,
        "tensor": words.tensor,
    }
    environment.globals.update(marks=words.MARKS, meanings=words.MEANINGS)
    environment.globals["show"] = environment.get_template("macros.html.j2").module
    return environment


def _text(name: str) -> str:
    return resources.files("parity.report.html").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _number(form: str, value: float | None) -> str:
    return NONE if value is None else format(value, form)
