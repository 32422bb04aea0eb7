"""Values as Python source."""

import re
from typing import Any

from parity.diagnose.arguments import Expression

EXPONENT = re.compile(r"e([+-])0(\d)")


def code(value: Any) -> str:
    """Return the Python expression for a value."""
    if isinstance(value, Expression):
        return str(value)
    return EXPONENT.sub(r"e\1\2", repr(tuple(value) if isinstance(value, list) else value))
