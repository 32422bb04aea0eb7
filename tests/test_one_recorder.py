"""One recorder: the modules of a model are walked in one file of each package, and their calls are hooked in one.

The instruments, which observe a program and not a model, are no part of it.
"""

import ast
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What each file alone may do, in the recorder of either package: the names that it refers to.
ALONE = {
    "tree.py": {"named_modules", "_layers", "_flatten_layers"},
    "calls.py": {
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_module_forward_hook",
        "register_module_forward_pre_hook",
    },
}


def elsewhere(recorder: Path) -> list[str]:
    """The uses of these names in other files."""
    return [
        f"{path.relative_to(recorder)}: {node.attr}"
        for path in sorted(recorder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and any(node.attr in names and path.name != file for file, names in ALONE.items())
    ]


@pytest.mark.parametrize("package", ["torch_impl", "keras_impl"])
def test_modules_are_walked_and_hooked_in_one_place(package):
    assert elsewhere(ROOT / package / "record") == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("paths = [path for path, _ in model.named_modules()]", "named_modules"),
        ("layers = model._flatten_layers()", "_flatten_layers"),
        ("handle = module.register_forward_hook(print)", "register_forward_hook"),
    ],
)
def test_a_second_place_is_seen(tmp_path, line, name):
    shutil.copytree(ROOT / "torch_impl" / "record", tmp_path / "record")
    masks = tmp_path / "record" / "masks.py"
    masks.write_text(f"{masks.read_text()}\n\n{line}\n")
    assert elsewhere(tmp_path / "record") == [f"masks.py: {name}"]
