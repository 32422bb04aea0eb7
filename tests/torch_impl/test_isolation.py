"""No module of torch_impl imports TensorFlow: seen in this process, which holds no other framework (tests/sides.py)."""

import importlib
import pkgutil
import sys

import torch_impl


def test_the_other_side_is_not_imported():
    for module in pkgutil.walk_packages(torch_impl.__path__, "torch_impl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert not {"tensorflow", "keras", "keras_impl"} & sys.modules.keys()
