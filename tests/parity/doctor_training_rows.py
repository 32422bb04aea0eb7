"""Evidence of losses that get the wrong numbers and of trainings in the wrong order, for the table of the rules."""

from typing import Any

from doctor_evidence import NAMES, Row, cut, evidence, gradients, place, step, tensor

from parity.doctor.evidence import Backward, Cut, Event, Evidence, Held, LossCall, Optimizer
from parity.doctor.evidence.ops import Code, Dropped, Repeated
from parity.trace.keys import MODEL

WHOLE = {"encoder": "none", "decoder": "none"}


def losing(side: Any = "torch", others: tuple[LossCall, ...] = (), **fields: Any) -> Evidence:
    """A step with a cross entropy of 8 samples and 64 classes."""
    given: dict[str, Any] = {"function": "cross_entropy", "takes": "logits", "smallest": -3.0, "largest": 4.0}
    given |= {"input": tensor([8, 64]), "target": tensor([8], dtype="int64"), "place": place("", "train.py:6", "loss")}
    return evidence(side, steps=[step(losses=[LossCall(**(given | fields)), *others])])


def rows(how: Any, *others: str) -> Evidence:
    """The order of the targets of a loss, and of others beside it."""
    seen = [losing(rows=other).steps[0].losses[0] for other in others]
    return losing(others=tuple(seen), rows=how, reordered=Code(source="train.py:4", fix="y = y[order]"))


def ordered(*events: str, twice: bool = True) -> Evidence:
    """Two steps of these events, each in a line of its own."""
    seen: list[Any] = [Event(what=what, source=f"train.py:{n}", statement=f"{what}()") for n, what in enumerate(events)]
    return evidence(steps=[step(events=seen), step(events=seen)][: 1 + twice])


def idle(side: Any = "torch", changed: bool | None = False, stepped: bool = False, **backward: Any) -> Evidence:
    """An optimizer that makes no update, while parameters change by other means or do not."""
    optimizers = [Optimizer(kind="Adam", source="train.py:2", parameters=list(NAMES), stepped=stepped)]
    passes = [Backward(source="train.py:7", scaled=False, kept=[], **backward)]
    return evidence(side, steps=[step(optimizers=optimizers, backwards=passes)] * 2, changed=changed)


def accumulated(scaled: bool) -> Evidence:
    """Gradients of more steps than were run."""
    optimizers = [Optimizer(kind="Adam", source="train.py:2", parameters=list(NAMES), stepped=False)]
    first, second = (Backward(source="train.py:7", scaled=scaled, kept=kept) for kept in ([], list(NAMES)))
    steps = [step(optimizers=optimizers, backwards=[each]) for each in (first, second)]
    return evidence(steps=steps, changed=False)


def grown(before: float, after: float, slower: Code | None = None) -> Evidence:
    optimizer = Optimizer(kind="SGD", source="train.py:2", parameters=list(NAMES), stepped=True, rate=1e18)
    optimizer.before, optimizer.after, optimizer.slower = before, after, slower
    return evidence(steps=[step(optimizers=[optimizer])])


def kept(**fields: Any) -> Evidence:
    return evidence(steps=[step(held=Held(place=place("", "train.py:9"), **fields))])


def dropped(**fields: Any) -> Evidence:
    """A dropout function in a module that is in eval mode."""
    call = Dropped(function="dropout", rate=0.1, place=place("encoder", "model.py:9"), **fields)
    return evidence(steps=[step(dropped=[call])])


def drawn_twice(**fields: Any) -> Evidence:
    """A batch of a data loader that another of its workers has made before."""
    seen = Repeated(batch=3, first=2, place=place("", "train.py:4"), **fields)
    return evidence(steps=[step(repeated=[seen])])


def cut_off(*cuts: Cut, **states: str) -> Evidence:
    return evidence(steps=[step(gradients=gradients(**states), cuts=list(cuts))])


def mended(what: str) -> Cut:
    """A cut of what the model returned, and the line without it."""
    seen = cut(what, tensor([8, 64], origin=f"output of {MODEL}"), "train.py:6", "")
    seen.mended = Code(source="train.py:6", fix="out = model(x)")
    return seen


WITHOUT = Code(source="model.py:8", fix="return self.out(x)")
WHOLE_NUMBERS = cut("integers", tensor([8, 64], origin=f"output of {MODEL}"), "train.py:6", "")

TRAINING_ROWS: list[Row] = [
    (losing(activation="softmax", smallest=0.0, largest=1.0, mended=WITHOUT),
        *("loss.softmax_twice", "error", "", "model.py:8", "return self.out(x)"),
        losing(activation="log_softmax", smallest=-3.0, largest=0.0)),
    (losing(smallest=0.0, largest=0.9, sums=(0.9999, 1.0001)),
        *("loss.softmax_twice", "error", "", "train.py:6", "cross_entropy(logits, target)"),
        losing(smallest=0.0, largest=0.9, sums=(0.8, 1.2))),
    (losing(activation="sigmoid", smallest=0.1, largest=0.9),
        *("loss.sigmoid_twice", "error", "", "train.py:6", "(logits, target)"),
        losing(takes="probabilities", activation="sigmoid", smallest=0.1, largest=0.9)),
    (losing(function="nll_loss", takes="log_probabilities"),
        *("loss.not_logarithms", "error", "", "train.py:6", "nll_loss(log_probabilities, target)"),
        losing(function="nll_loss", takes="log_probabilities", largest=0.0)),
    (losing("keras", takes="probabilities", mended=Code(source="build.py:3", fix="from_logits=True")),
        *("loss.raw_logits", "error", "", "build.py:3", "from_logits=True"),
        losing("keras", takes="probabilities", smallest=0.0, largest=1.0)),
    (rows("apart"), *("loss.shuffled_apart", "error", "", "train.py:4", "y = y[order]"), rows("apart", "together")),
    (idle(update="adam.step()"), "learning.no_step", "error", "", "train.py:7", "adam.step()  # after",
        idle(stepped=True)),
    (idle("keras"), "learning.no_step", "error", "", "train.py:7", "optimizer.apply(", idle("keras", changed=True)),
    (accumulated(False), "learning.no_step", "error", "", "train.py:7", "optimizer.step()", accumulated(True)),
    (ordered("clear", "clip", "backward", "update"),
        *("learning.clipped_in_vain", "error", "", "train.py:1", "clip()  # moved before line 3"),
        ordered("clear", "backward", "clip", "update")),
    (ordered("clear", "backward", "update", "clip"),
        *("learning.clipped_in_vain", "error", "", "train.py:3", "clip()  # moved before line 2"),
        ordered("clear", "backward", "clip", "clip", "update")),
    (ordered("backward", "schedule", "update"),
        *("learning.scheduled_first", "warning", "", "train.py:1", "schedule()  # moved after line 2"),
        ordered("backward", "update", "schedule")),
    (grown(0.1, 1e17, Code(source="train.py:3", fix="SGD(lr=1e-3)")),
        *("learning.exploding", "error", "", "train.py:3", "SGD(lr=1e-3)"), grown(0.0, 0.1)),
    (grown(0.1, float("nan")), "learning.exploding", "error", "", "train.py:2", "lr=1e-3", grown(0.1, 5.0)),
    (kept(mended=Code(source="train.py:8", fix="total += loss.detach()")),
        *("memory.graph_kept", "warning", "", "train.py:8", "total += loss.detach()"), evidence()),
    (cut_off(mended("detach"), **WHOLE), *("learning.no_gradient", "error", MODEL, "train.py:6", "out = model(x)"),
        cut_off(mended("detach"))),
    (cut_off(WHOLE_NUMBERS, **WHOLE),
        *("learning.no_gradient", "error", MODEL, "train.py:6", "cross_entropy(scores, labels)"),
        cut_off(WHOLE_NUMBERS)),
    (dropped(mended=Code(source="model.py:9", fix="x = dropout(x, training=self.training)")),
        *("mode.dropout", "warning", "encoder", "model.py:9", "x = dropout(x, training=self.training)"), evidence()),
    (evidence(frozen_by_train=["encoder.weight", "encoder.bias"]),
        *("learning.frozen_late", "warning", "encoder", "build.py:3", "model.train()"), evidence()),
    (drawn_twice(whole=True), "input.repeated", "warning", "", "train.py:4", "get_worker_info()", evidence()),
    (drawn_twice(), "input.repeated", "warning", "", "train.py:4", "torch.initial_seed()", evidence()),
    (dropped(), "mode.dropout", "warning", "encoder", "model.py:9", "F.dropout(", evidence()),
]  # fmt: skip
