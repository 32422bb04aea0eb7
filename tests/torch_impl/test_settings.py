"""Whatever a user's code sets for a whole process is seen, so that it does not reach the next pair."""

import pytest
import torch
from judged import is_seen
from torch.nn.modules import module as calls

from torch_impl.record.run import settings

HOOKS = []


def hooked(wanted: bool) -> None:
    """A hook on all modules, or none."""
    while HOOKS:
        HOOKS.pop().remove()
    if wanted:
        HOOKS.append(calls.register_module_forward_hook(print))


CHANGES = {
    "grad": (torch.set_grad_enabled, False, True),
    "default dtype": (torch.set_default_dtype, torch.float64, torch.float32),
    "default device": (torch.set_default_device, "meta", None),
    "deterministic": (torch.use_deterministic_algorithms, True, False),
    "threads": (torch.set_num_threads, 3, 1),
    "precision of products": (torch.set_float32_matmul_precision, "medium", "highest"),
    "precision of convolutions": (lambda to: setattr(torch.backends.mkldnn.conv, "fp32_precision", to), "bf16", "none"),
    "oneDNN": (lambda to: setattr(torch.backends.mkldnn, "enabled", to), False, True),
    "opt_einsum": (lambda to: setattr(torch.backends.opt_einsum, "enabled", to), False, True),
    "attention": (torch.backends.cuda.enable_math_sdp, False, True),
    "fast path": (torch.backends.mha.set_fastpath_enabled, False, True),
    "autocast": (lambda to: torch.set_autocast_enabled("cpu", to), True, False),
    "anomalies": (torch.autograd.set_detect_anomaly, True, False),
    "hook": (hooked, True, False),
}


@pytest.mark.parametrize(("change", "to", "back"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change, to, back):
    assert is_seen(change, to, back, settings)


def test_what_does_not_change_is_the_same_again():
    before = settings()
    torch.nn.Linear(3, 3)(torch.ones(2, 3)).sum().backward()
    assert settings() == before
