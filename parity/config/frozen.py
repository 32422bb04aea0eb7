"""The base class of all configs, and types for numbers within a range."""

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0.0)]
Fraction = Annotated[float, Meta(ge=0.0, lt=1.0)]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all configs: immutable, with keyword arguments only, and without unknown fields."""
