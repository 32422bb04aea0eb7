"""Causes as reports have them, made of the few fields that a test is about."""

from collections.abc import Mapping, Sequence
from typing import Any

from parity.results import Cause, Changed

CHANGE = {"side": "keras", "name": "", "owner": "", "source": "", "kind": "attribute", "path": "", "of": ""}


def made(id_: str, where: str = "", changes: Sequence[Mapping[str, Any]] = (), **fields: Any) -> Cause:
    return Cause(id=id_, where=where, changes=[changed(**each) for each in changes], **fields)


def changed(**fields: Any) -> Changed:
    return Changed(**{**CHANGE, "before": None, "after": None, **fields})
