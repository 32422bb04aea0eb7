"""No module of keras_impl imports torch: seen in this process, which holds no other framework (tests/sides.py)."""

import importlib
import pkgutil
import sys

import keras_impl


def test_the_other_side_is_not_imported():
    for module in pkgutil.walk_packages(keras_impl.__path__, "keras_impl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert not {"torch", "torch_impl"} & sys.modules.keys()
