"""Write docs/report.schema.json, the JSON Schema of the report: `python docs/report_schema.py`.

Run it after a change of parity/results.py.
"""

import inspect
from pathlib import Path
from typing import Any, Literal

import msgspec

from parity.config.sides import KINDS
from parity.results import SCHEMA, CaseResult, Cause, Check, LayoutCheck, Report

SPARSE = [kind.__name__ for kind in (Cause, *KINDS.values())]
PAGE = Path(__file__).with_name("report.schema.json")


def schema() -> dict[str, Any]:
    """Return the schema of a whole report. It holds every field, but of a cause or a side those that say something."""
    case = _with(CaseResult, checks=dict[str, Any])  # msgspec has no schema for a union of plain structs
    whole = _with(Report, cases=list[case], schema=Literal[SCHEMA])
    (report, *checks), parts = msgspec.json.schema_components(
        (whole, Check, LayoutCheck), ref_template="#/$defs/{name}"
    )
    parts["CaseResult"]["properties"]["checks"]["additionalProperties"] = {"anyOf": checks}
    for name, part in parts.items():
        if name not in SPARSE:
            part["required"] = [field for field in part["properties"] if field != "sides" or name != case.__name__]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **report, "$defs": parts}


def _with(kind: type[msgspec.Struct], **types: Any) -> type[msgspec.Struct]:
    """Return the same struct with other types for some fields."""
    fields = [(field.name, types.get(field.name, field.type)) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(kind.__name__, fields, kw_only=True, namespace={"__doc__": inspect.getdoc(kind)})


def main() -> None:
    """Write the file."""
    PAGE.write_bytes(msgspec.json.format(msgspec.json.encode(schema()), indent=1) + b"\n")


if __name__ == "__main__":
    main()
