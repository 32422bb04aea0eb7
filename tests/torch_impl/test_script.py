"""Training scripts in PyTorch, run step by step: the same as run whole, on the batches that they are given."""

import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn

from parity.core.errors import UsageError
from parity.pairs.script_records import OF_LOSS
from torch_impl.record import calls
from torch_impl.record.pair.optimizers import StepObserver
from torch_impl.record.pair.script import Script
from torch_impl.record.precision import policy, promoted

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
loss_of = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0]), reduction="none")
data = TensorDataset(torch.randn(18, 4), torch.randint(0, 3, (18,)), torch.rand(18))
with torch.no_grad():
    model(data.tensors[0])
for epoch in range(2):
    for x, labels, weights in DataLoader(data, batch_size=6, shuffle=True):
        loss = (loss_of(model(x), labels) * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        print(loss_of(model(data.tensors[0]), data.tensors[1]).mean())
    model.train()
"""


def _script(folder: Path, text: str, arguments: str = "") -> Script:
    (folder / "train.py").write_text(text)
    return Script(f"train.py {arguments}", [str(folder)])


def _named(batches: Iterable[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """The batches with the names that parity.pairs.scripts gives to what a loss takes."""
    names = {f"{OF_LOSS}0": "target", f"{OF_LOSS}1": "sample_weight"}
    return [{names.get(name, name): each for name, each in batch.items()} for batch in batches]


def test_step_by_step_is_the_same_as_whole(tmp_path: Path):
    script = _script(tmp_path, SCRIPT)
    whole = runpy.run_path(str(tmp_path / "train.py"))
    batches = _named(script.batches(6))
    script.close()
    again = _script(tmp_path, SCRIPT)
    model = again.build()
    optimizer = again.optimizer(list(model.parameters()))
    losses = [again.step(model, optimizer, batch).item() for batch in batches]
    assert losses[-1] == whole["loss"].item()
    assert all(map(torch.equal, model.state_dict().values(), whole["model"].state_dict().values()))
    assert [set(batch) for batch in batches] == [{"input", "target", "sample_weight"}] * 6


def test_accumulated_gradients_wait_in_a_step_of_their_own(tmp_path: Path):
    text = SCRIPT.replace("        optimizer.step()", "        if len(losses) % 2: continue\n        optimizer.step()")
    text = text.replace("        optimizer.zero_grad()\n", "        losses.append(loss.item())\n")
    text = text.replace("        schedule.step()", "        optimizer.zero_grad()").replace(
        "for epoch", "losses = []\nfor epoch"
    )
    script = _script(tmp_path, text)
    whole, batches = runpy.run_path(str(tmp_path / "train.py")), _named(script.batches(6))
    again = _script(tmp_path, text)
    model = again.build()
    optimizer = again.optimizer(list(model.parameters()))
    assert [again.step(model, optimizer, batch) for batch in batches] == [None] * 6
    for steps, run in ((1, 2), (2, 4), (3, 4), (5, 5)):  # until a second update
        script = _script(tmp_path, text)
        assert len(list(script.batches(steps))) == run
        script.close()
    assert all(map(torch.equal, model.state_dict().values(), whole["model"].state_dict().values()))


def test_data_that_is_drawn_is_the_same_in_float64(tmp_path: Path):
    text = MODEL + SGD + "x = torch.randn(4, 2) + torch.empty(4, 2).uniform_(1, 2)\nx = x * torch.rand_like(x)\n"
    text += "(m(x) - torch.rand(4, 2, dtype=torch.float64)).sum().backward(); o.step()"
    torch.manual_seed(5)
    (low,) = _script(tmp_path, text).batches(1)
    torch.manual_seed(5)
    with policy("float64"), promoted("float64"):
        (high,) = _script(tmp_path, text).batches(1)
    assert high["input"].dtype == torch.float64
    torch.testing.assert_close(high["input"].float(), low["input"], rtol=1e-6, atol=0)
    assert torch.equal(high[f"{OF_LOSS}0"], low[f"{OF_LOSS}0"])


def test_a_step_is_given_another_batch(tmp_path: Path):
    script = _script(tmp_path, SCRIPT)
    model = script.build()
    batch = {"input": torch.ones(2, 4), "target": torch.tensor([0, 2]), "sample_weight": torch.tensor([1.0, 3.0])}
    with torch.no_grad():
        each = nn.functional.cross_entropy(
            model(batch["input"]), batch["target"], weight=torch.tensor([1.0, 2.0, 4.0]), reduction="none"
        )
    loss = script.step(model, script.optimizer(list(model.parameters())), batch)
    script.close()
    torch.testing.assert_close(loss.detach(), (each * batch["sample_weight"]).mean())


def test_evaluations_are_not_observed(tmp_path: Path):
    script = _script(tmp_path, SCRIPT.replace("batch_size=6", "batch_size=18"))
    model = script.build()
    batch, optimizer = _named(_script(tmp_path, SCRIPT).batches(1))[0], script.optimizer(list(model.parameters()))
    seen: list[bool] = []
    with calls.observed({"0": model[0]}, lambda call: seen.append(call.module.training), lambda *_: None):
        script.step(model, optimizer, batch)
        script.step(model, optimizer, batch)
    script.close()
    assert seen == [True, True]


def test_a_step_that_was_left_in_its_backward_pass_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class LeftError(BaseException):
        pass

    losses = []

    def leave(loss: torch.Tensor, *_: object, **__: object) -> None:
        losses.append(loss.item())
        raise LeftError

    script = _script(tmp_path, SCRIPT)
    model = script.build()
    batch, optimizer = _named(_script(tmp_path, SCRIPT).batches(1))[0], script.optimizer(list(model.parameters()))
    monkeypatch.setattr(torch.autograd, "backward", leave)
    for factor in (1.0, 1.0, 2.0):
        with torch.no_grad():
            model[3].weight *= factor
        with pytest.raises(LeftError):
            script.step(model, optimizer, batch)
    assert losses[0] == losses[1] != losses[2]


def test_a_new_optimizer_is_like_the_scripts(tmp_path: Path):
    text = SCRIPT.replace(
        "model.parameters(), lr=0.01",
        "[{'params': model[0].parameters(), 'weight_decay': 0.1}, {'params': [*model[1:].parameters()]}], lr=0.01",
    )
    script = _script(tmp_path, text)
    parameters = list(script.build().parameters())
    first, again = script.optimizer(parameters), script.optimizer(parameters[-1:])
    script.close()
    assert [len(group["params"]) for group in first.param_groups] == [2, 4]
    assert [(group["params"][0] is parameters[-1], group["weight_decay"]) for group in again.param_groups] == [
        (True, 0)
    ]


MODEL = "import sys, torch\nfrom torch import nn\nm, n = nn.Linear(2, 2), nn.Linear(2, 2)\nx = torch.ones(4, 2)\n"
SGD = "o = torch.optim.SGD(m.parameters(), 0.1)\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODEL + "m(x).sum().backward()", "no nn.Module was called in training mode that holds the parameters of a "),
        (MODEL + "sys.exit(4)", r"ended by sys\.exit\(4\) before it had trained"),
        (MODEL + SGD + "m(x).sum()", "ended before its backward pass"),
        (
            MODEL + SGD + "p = torch.optim.SGD(n.parameters(), 0.1)\n(m(x) + n(x)).sum().backward()",
            "trains modules that it calls one by one, Linear and Linear",
        ),
        (
            MODEL + "o = torch.optim.SGD([*m.parameters(), *n.parameters()], 0.1)\nm(x).sum().backward(); o.step()",
            r"trains 2 parameters outside of the module that is called, Linear, the first of shape \(2, 2\)",
        ),
        (
            MODEL + "class M(nn.Linear):\n    def forward(self, x):\n        return super().forward(x[0]) * x[1]\n"
            "m = M(2, 2)\n" + SGD + "m((x, 2)).sum().backward(); o.step()",
            "calls its model with x.1=2 within others, expected tensors there",
        ),
    ],
)  # fmt: skip
def test_scripts_that_train_otherwise(text: str, message: str, tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        list(_script(tmp_path, text).batches(1))


def test_labels_that_a_model_takes_are_the_target(tmp_path: Path):
    model = "class M(nn.Linear):\n    def forward(self, x, target, labels=None):\n"
    model += "        out = super().forward(x + target)\n"
    text = f"{MODEL}{model}        return out, ((out - labels) ** 2).mean()\nm = M(2, 2)\n{SGD}"
    text += "m(x, torch.zeros(4, 1), labels=x + 1)[1].backward(); o.step()"
    (batch,) = _script(tmp_path, text).batches(1)
    assert list(batch) == ["x", "target_", "target"] and batch["target_"].shape == (4, 1)
    script = _script(tmp_path, text)
    model = script.build()
    loss = script.step(model, script.optimizer([*model.parameters()]), batch | {"target": model(batch["x"], 0, 0)[0]})
    assert loss == 0


def test_a_script_that_ends_before(tmp_path: Path):
    text = MODEL + SGD + "for _ in range(2):\n    (m(x) - torch.zeros(4, 2)).sum().backward()\n    o.step()\n"
    assert len(list(_script(tmp_path, text).batches(5))) == 2
    text += "with torch.no_grad():\n    m(x)\n"
    assert len(list(_script(tmp_path, text).batches(5))) == 2


def test_a_script_that_is_missing():
    with pytest.raises(UsageError, match=r"there is no script 'nowhere\.py' in /tmp"):
        Script("nowhere.py", ["/tmp"])


def test_an_optimizer_may_call_the_model_itself(tmp_path: Path):
    """The gradients are those that the closure of its step has computed, and the rate is that of this step."""
    text = SCRIPT.replace(
        "        loss = (loss_of", "        def closure():\n            global loss\n            loss = (loss_of"
    )
    text = text.replace(
        "        optimizer.zero_grad()\n        loss.backward()\n        nn.utils",
        "            optimizer.zero_grad()\n            loss.backward()\n            nn.utils",
    ).replace("0.5)\n        optimizer.step()", "0.5)\n            return loss\n        optimizer.step(closure)")
    plain, closing = ([], [])
    for folder, source, seen in (("plain", SCRIPT, plain), ("closing", text, closing)):
        (tmp_path / folder).mkdir()
        script = _script(tmp_path / folder, source)
        model = script.build()
        optimizer = script.optimizer(list(model.parameters()))
        for batch in _script(tmp_path / folder, SCRIPT).batches(3):
            observer = StepObserver(model.parameters())
            with observer.watched():
                script.step(model, optimizer, batch)
            (rate,) = observer.rates.values()
            seen.append((observer.is_applied, rate, [each.sum() for each in observer.gradients.values()]))
        script.close()
    assert plain == closing and [rate for _, rate, _ in plain] == [0.01, 0.005, 0.0025]


def test_options_of_a_models_call_are_the_scripts_own(tmp_path: Path):
    model = "class M(nn.Linear):\n    def forward(self, x, n=1, twice=False):\n        y = super().forward(x) / n\n"
    model += "        return y + y if twice else y\nm = M(2, 2)\n"
    script = _script(tmp_path, MODEL + model + SGD + "m(x, n=torch.tensor(2.0), twice=True).sum().backward(); o.step()")
    called = script.build()
    torch.testing.assert_close(
        called(torch.ones(3, 2)), nn.functional.linear(torch.ones(3, 2), called.weight, called.bias)
    )
    script.close()
    assert [set(batch) for batch in _script(tmp_path, (tmp_path / "train.py").read_text()).batches(1)] == [{"x"}]
