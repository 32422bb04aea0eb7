"""The corrected twins of the programs that say in place what is right: `corrected:SIDE__FILE__FUNCTION`.

Lines that end with `# wrong` (behind which may stand `# fault`, for the line that is to be named) are left out, and the
comments `# right: ...` are lines of code. A twin that is another program has functions of its own (`build_right`).
"""

import functools
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
WRONG, RIGHT = "  # wrong", re.compile(r"( *)# right: (.*)")


def is_told_in_place(text: str) -> bool:
    return WRONG in text or any(map(RIGHT.fullmatch, text.splitlines()))


def corrected(text: str) -> str:
    lines = [RIGHT.sub(r"\1\2", line) for line in text.splitlines() if WRONG not in line]
    return "\n".join([*lines, ""])


def __getattr__(name: str) -> Callable[..., Any]:
    side, separator, rest = name.partition("__")
    if not side or not separator:
        raise AttributeError(name)
    program, _, function = rest.partition("__")
    return getattr(_module(side, program), function)


@functools.cache
def _module(side: str, program: str) -> ModuleType:
    """The twin as a file of its own, for what reads source code; its folder is one of the process's temporary ones."""
    path = Path(tempfile.mkdtemp()) / f"{program}.py"
    path.write_text(corrected((HERE / side / f"{program}.py").read_text()))
    spec = importlib.util.spec_from_file_location(f"corrected_{side}_{program}", path)
    assert spec and spec.loader
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
