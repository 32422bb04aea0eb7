"""A port as a folder of its own: the builder, and copies of the modules that its model is made of.

What a library publishes becomes the user's own code, as if they had copied it into their project: the library's modules
that are executed are copied into the package `port`, and whatever names them is made to name the copies.
"""

import importlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import libcst as cst

PACKAGE = "port"
# What a model is made of, of the libraries that publish models; not what loads, saves or serves them.
PUBLISHED = ("keras_hub/src/models/", "keras_hub/src/layers/modeling/", "keras/src/applications/")
NEVER = ("/backbone.py", "/task.py", "/imagenet_utils.py", "/feature_pyramid_backbone.py", "__init__.py")
EXPORTS = ("keras_hub_export", "keras_export", "keras.saving.register_keras_serializable")


def is_published(file: str) -> bool:
    """Return whether a file belongs to a published model."""
    return any(part in file for part in PUBLISHED) and not file.endswith(NEVER)


def make(folder: Path, home: Path, executed: Iterable[str]) -> dict[str, str]:
    """Write the port into `folder`: links to all of `home`, copies of the executed files.

    Returns the original file of each file that may be mutated, by its path in the folder.
    """
    own = {str(path): path.name for path in home.glob("*.py") if str(path) in set(executed)}
    library = {file: f"{PACKAGE}/{name}" for file, name in _names([f for f in executed if is_published(f)]).items()}
    modules = {module: library[file].removesuffix(".py").replace("/", ".") for module, file in _modules(library)}
    (folder / PACKAGE).mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").write_text("")
    for entry in home.iterdir():
        if entry.name != "__pycache__" and str(entry) not in own:
            (folder / entry.name).symlink_to(entry)
    for file, name in (own | library).items():
        namespace = next((each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == file), None)
        (folder / name).write_text(renamed(Path(file).read_text(), namespace, modules))
    return {name: file for file, name in (own | library).items()}


def _names(files: Iterable[str]) -> dict[str, str]:
    """Return a file name for each file, of which no two are equal."""
    names: dict[str, str] = {}
    for file in sorted(files):
        name = Path(file).name
        names[file] = f"{Path(file).parent.name}_{name}" if name in names.values() else name
    return names


def _modules(files: Iterable[str]) -> list[tuple[str, str]]:
    """Return the imported modules that are made of these files, each with its file."""
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    return [(name, file) for name, file in loaded if file in set(files)]


def renamed(source: str, namespace: ModuleType | None, modules: dict[str, str]) -> str:
    """Return a source that names the copies of modules; `namespace` is the module of the source, `modules` the copies.

    Decorators that register a class under its public name are left out: the copy is another class.
    """
    tree = cst.parse_module(source)
    change = _Renaming(vars(namespace) if namespace else {}, modules)
    return tree.visit(change).code


class _Renaming(cst.CSTTransformer):
    """Lets imports and dotted names name the copies."""

    def __init__(self, names: dict[str, Any], modules: dict[str, str]) -> None:
        self._names, self._modules = names, modules
        self._imports: dict[str, None] = {}

    def leave_Decorator(self, original: cst.Decorator, updated: cst.Decorator) -> Any:  # noqa: N802
        text = cst.Module([]).code_for_node(updated.decorator)
        return cst.RemoveFromParent() if text.startswith(EXPORTS) else updated

    def leave_SimpleStatementLine(  # noqa: N802
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> Any:
        """Split `from module import a, b` where some names are those of copies."""
        statement = updated.body[0]
        if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
            return updated
        if statement.module is None or statement.relative:
            return updated
        text = cst.Module([]).code_for_node(statement.module)
        lines = [self._imported(text, alias) for alias in statement.names]
        if all(line.startswith(f"from {text} import ") for line in lines):
            return updated
        return updated.with_changes(body=[_statement(line) for line in lines])

    def leave_Attribute(self, original: cst.Attribute, updated: cst.Attribute) -> Any:  # noqa: N802
        """Let `hub.MistralBackbone` name the copy."""
        copy = self._copy(self._value(cst.Module([]).code_for_node(original)))
        if not copy:
            return updated
        self._imports[f"from {copy} import {original.attr.value}"] = None
        return original.attr

    def leave_Module(self, original: cst.Module, updated: cst.Module) -> cst.Module:  # noqa: N802
        """Add the imports of what was named through a module, below the docstring."""
        lines = [cst.SimpleStatementLine([_statement(line)]) for line in self._imports]
        head = 1 if original.get_docstring() is not None else 0
        return updated.with_changes(body=[*updated.body[:head], *lines, *updated.body[head:]])

    def _imported(self, module: str, alias: cst.ImportAlias) -> str:
        name = cst.Module([]).code_for_node(alias.name)
        asname = f" as {alias.evaluated_alias}" if alias.evaluated_alias else ""
        try:
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            return f"from {module} import {name}{asname}"
        if isinstance(value, ModuleType) and value.__name__ in self._modules:
            return f"import {self._modules[value.__name__]} as {alias.evaluated_alias or name}"
        copy = self._copy(value)
        return f"from {copy or module} import {name}{asname}"

    def _copy(self, value: Any) -> str:
        """Return the module of the copy of a class or function; "" if it is not copied."""
        is_made = isinstance(value, type) or callable(value)
        return self._modules.get(getattr(value, "__module__", None) or "", "") if is_made else ""

    def _value(self, text: str) -> Any:
        """Return what a dotted name names in the module; None if it names nothing."""
        if not all(part.isidentifier() for part in text.split(".")) or text.partition(".")[0] not in self._names:
            return None
        value: Any = self._names
        for part in text.split("."):
            value = value.get(part) if isinstance(value, dict) and value is self._names else getattr(value, part, None)
        return value


def _statement(line: str) -> cst.BaseSmallStatement:
    return cst.parse_module(line).body[0].body[0]  # type: ignore[union-attr, index, return-value]


def write(folder: Path, port: Path, file: str, source: str) -> None:
    """Write a mutant into `folder`: links to all of a port but for one file."""
    (folder / PACKAGE).mkdir(parents=True)
    for entry in (*port.iterdir(), *(port / PACKAGE).iterdir()):
        relative = entry.relative_to(port)
        if entry.name not in (PACKAGE, "__pycache__") and str(relative) != file:
            (folder / relative).symlink_to(entry.resolve())
    (folder / file).write_text(source)


def remove(folder: Path) -> None:
    """Remove a mutant's folder."""
    shutil.rmtree(folder, ignore_errors=True)
