"""The high run of a model that computes in float32 on purpose has no float32 in it, and says what was lifted."""

import numpy as np
import pytest
import torch
from pair_models import Doubling, Island, PairContext, Recomputing, default_changed
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_impl.record import precision
from torch_impl.record.precision import promote_weights, promoted

NARROW = (torch.float32, torch.complex64)


ISLAND = (
    ".to(float32)",
    ".to(complex64)",
    ".type(float32)",
    ".float()",
    ".mean(float32)",
    ".new_full(float32)",
    "torch.softmax(float32)",
    "torch.tensor(float32)",
    "torch.zeros(float32)",
)


class Narrow(TorchDispatchMode):
    """The ops that made a tensor in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        narrow = [x for x in tree_leaves(made) if isinstance(x, torch.Tensor) and x.dtype in NARROW]
        self.seen.extend([str(func)] * len(narrow))
        return made


def ran(build, at: str, width: int = 4) -> tuple[torch.Tensor, list[str], list[str]]:
    """The output, what was lifted, and the ops that made single precision."""
    with precision.policy(at), promoted(at) as places:
        torch.manual_seed(0)
        model = build()
        places.extend(promote_weights(model, at))
        x = torch.linspace(-1, 1, width)
        with Narrow() as narrow:
            made = model(x)
            made.sum().backward()
    return made.detach(), places, narrow.seen


def test_no_float32_is_left():
    made, _, narrow = ran(Island, "float64")
    assert made.dtype == torch.float64
    assert narrow == []


def test_without_lifting_there_is_float32():
    """The check above can fail."""
    with precision.policy("float64"), Narrow() as narrow:
        Island()(torch.ones(4))
    assert len(narrow.seen) > 10


def test_lifting_changes_the_values():
    with precision.policy("float64"):
        torch.manual_seed(0)
        plain = Island()(torch.linspace(-1, 1, 4)).detach()
    high = ran(Island, "float64")[0]
    assert 1e-9 < (plain - high).abs().max() < 1e-5


@pytest.mark.parametrize("at", ["float32", "bfloat16"])
def test_a_low_run_is_left_alone(at):
    made, places, _ = ran(Island, at)
    assert made.dtype == torch.float32
    assert places == []


def test_the_report_names_place_and_function_once():
    places = ran(lambda: nn.Sequential(nn.Identity(), Island(), Island()), "float64")[1]
    assert len(places) == len(set(places))
    assert set(places) == {
        "build: torch.full(float32)",
        "build: .float()",
        "build: torch.from_numpy, of values that stay rounded to float32",
        *(f"{module}: {what}" for module in (1, 2) for what in ISLAND),
    }


def test_the_users_code_in_the_backward_pass_is_lifted_too():
    """A function's own backward, and what a checkpoint computes again."""
    narrow = ran(lambda: nn.Sequential(Recomputing(), Twice()), "float64", 3)[2]
    assert narrow == []


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubling.apply(x)


def test_half_precision_stays():
    with precision.policy("float64"), promoted("float64") as places:
        high = PairContext()(torch.rand(4))
    assert places == []
    assert torch.equal(high, high.to(torch.bfloat16).to(torch.float64))


def test_what_the_builder_holds_narrowly_is_widened():
    with precision.policy("float64"), promoted("float64"):
        model = nn.Sequential(nn.Linear(2, 2).half(), nn.BatchNorm1d(2).bfloat16())
        places = promote_weights(model, "float64")
    assert places == ["0.weight and 1 more: held in float16", "1.weight and 3 more: held in bfloat16"]
    tensors = [*model.parameters(), *model.buffers()]
    assert {x.dtype for x in tensors} == {torch.float64, torch.int64}
    model = nn.Linear(2, 2).half()
    assert promote_weights(model, "float32") == []
    assert model.weight.dtype == torch.float32


def test_a_default_dtype_of_the_builders_is_lifted_and_given_back():
    with precision.policy("float64"), promoted("float64") as places:
        assert default_changed().weight.dtype == torch.float64
        assert torch.get_default_dtype() == torch.float64
    assert places == ["build: torch.set_default_dtype(float32)"]
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("make", ["tensor", "as_tensor", "from_numpy", "asarray"])
def test_what_numpy_holds_narrowly_is_widened_as_it_is(make):
    with promoted("float64") as places:
        made = getattr(torch, make)(np.full(2, 1 / 3, np.float32))
    assert made.dtype == torch.float64
    assert made[0] == np.float32(1 / 3)
    assert places == [f"build: torch.{make}, of values that stay rounded to float32"]


def test_a_checkpoint_is_read_in_its_own_dtype_and_widened(tmp_path):
    weights = {"weight": torch.rand(2, 3), "count": torch.arange(2)}
    torch.save(weights, tmp_path / "weights.pt")
    with promoted("float64") as places:
        read = torch.load(tmp_path / "weights.pt")
    assert read["weight"].dtype == torch.float64 and read["count"].dtype == torch.int64
    assert torch.equal(read["weight"], weights["weight"].double())
    assert places == ["build: torch.load, of values that stay rounded to float32"]


def test_bits_are_read_as_they_are():
    with promoted("float64"):
        bits = torch.ones(3, dtype=torch.int32) * 0x40490FDB
        assert bits.view(torch.float32).tolist() == pytest.approx([np.pi] * 3)


def test_all_is_as_before_afterwards():
    functions = (torch.from_numpy, torch.set_default_dtype)
    with pytest.raises(RuntimeError, match="planted"), promoted("float64"):
        raise RuntimeError("planted")
    assert (torch.from_numpy, torch.set_default_dtype) == functions
    assert torch.ones(1).float().dtype == torch.float32
    assert torch.from_numpy(np.ones(1, np.float32)).dtype == torch.float32


def test_a_raising_module_leaves_no_trace_in_the_names():
    class Raising(nn.Module):
        def forward(self, x):
            raise RuntimeError("planted")

    with precision.policy("float64"), promoted("float64") as places:
        with pytest.raises(RuntimeError, match="planted"):
            nn.Sequential(Raising())(torch.ones(1))
        torch.ones(1).float()
    assert places == ["build: .float()"]


MODELS = {
    "LlamaForCausalLM": (
        "LlamaConfig",
        {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
    ),
    "GPT2Model": ("GPT2Config", {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "BertModel": (
        "BertConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_public_models_have_no_float32(name):
    transformers = pytest.importorskip("transformers")
    config, sizes = MODELS[name]
    with precision.policy("float64"), promoted("float64") as places:
        model = getattr(transformers, name)(getattr(transformers, config)(vocab_size=50, **sizes)).eval()
        with Narrow() as narrow:
            model(torch.arange(12).view(2, 6))[0].sum().backward()
    assert narrow.seen == []
    assert ("model.norm: .to(float32)" in places) == (name == "LlamaForCausalLM")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_loss_scaling_are_those_of_the_float32_run(dtype):
    def gradient(at: str) -> tuple[torch.Tensor, torch.dtype, list[str]]:
        with precision.policy(at), promoted(at) as places:
            model, scaler = nn.Linear(4, 4, bias=False), torch.amp.GradScaler("cpu", init_scale=256.0)
            nn.init.eye_(model.weight)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with torch.autocast("cpu", dtype=dtype):
                made = model(torch.linspace(-1, 1, 4))
            scaler.scale(made.square().sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return model.weight.grad, made.dtype, places

    low, made, _ = gradient("float32")
    assert made == dtype
    high, made, places = gradient("float64")
    assert made == torch.float64 and places == [f"build: torch.autocast({str(dtype).removeprefix('torch.')})"]
    torch.testing.assert_close(low, high.float(), rtol=0.1, atol=0.01)


def test_optimizers_count_their_steps_in_float32():
    """A fused kernel on a GPU reads the count as float32, whatever it is."""
    with precision.policy("float64"), promoted("float64") as places:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    state = optimizer.state[model.weight]
    assert (state["step"].dtype, state["exp_avg"].dtype, places) == (torch.float32, torch.float64, [])
