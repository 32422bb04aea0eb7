"""Findings: what the doctor reports about a program; the ids of all findings, and what each means."""

from typing import Literal

import msgspec

from parity.doctor.evidence import Code, Place

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # from the worst on


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is wrong, or worth knowing."""

    id: str  # the kind of finding; stable, for --ignore. `IDS` lists them
    severity: Severity
    where: str  # the path of the module; "" outside of the model
    source: str  # the line of the user's code that should be changed, as "file:line"
    message: str  # what was observed, with its numbers
    fix: str  # a line of code that mends it; "" if none is known
    side: str = ""  # "torch" or "keras"
    case: str = ""  # the name of the built-in case, if it is one


def make_finding(
    severity: Severity, name: str, where: str, source: str, message: str, fix: str | Code, line: Code | None = None
) -> Finding:
    """Return a finding, with arguments in the order in which a report shows them.

    `fix` may be the user's own line. `line`, if it is known, is one that should be changed in place of these.
    """
    text = fix.fix if isinstance(fix, Code) else fix
    source, text = (line.source or source, line.fix or text) if line else (source, text)
    return Finding(id=name, severity=severity, where=where, source=source, message=message, fix=text)


def finding_at(
    severity: Severity, name: str, place: Place, message: str, fix: str | Code, line: Code | None = None
) -> Finding:
    """Return a finding about what happened at a place."""
    return make_finding(severity, name, place.module, place.source, message, fix, line)


IDS = {
    "autograd.in_place": "an op overwrote what the backward pass needs",
    "autograd.state_kept": "a state is carried to the next step with its graph",
    "collective.left": "a rank ended while others wait for it",
    "collective.order": "the ranks call collectives, sends or receives in different orders",
    "collective.shape": "the ranks call a collective with different shapes or types",
    "copy.constant": "the same values are sent from the host in each step",
    "copy.implicit": "TensorFlow moved activations between GPUs on its own",
    "copy.parameter": "a parameter goes from device to device in each step",
    "finite.backward": "the first NaN or infinity, in the backward pass",
    "finite.forward": "the first NaN or infinity, in the forward pass or the loss",
    "function.compiled": "a model is compiled in each step",
    "function.eager": "a part of a tf.function runs in Python",
    "function.frozen": "Python draws a random number or reads the time while a tf.function is traced",
    "function.predict": "predict is called in each step, for a single batch",
    "function.retraced": "a tf.function is traced again and again",
    "gpu.not_pretended": "virtual GPUs do not imitate a call of the program",
    "input.copied_again": "an input is copied to the same device several times in a step",
    "input.device": "an input is on another device than the model",
    "input.not_contiguous": "a large batch goes to a GPU and is not contiguous",
    "input.not_pinned": "a large batch goes to a GPU from memory that is not pinned",
    "input.repeated": "the workers of a data loader return the same batches",
    "learning.cleared_early": "gradients are cleared before the update uses them",
    "learning.clipped_in_vain": "gradients are clipped before the backward pass, or after the update",
    "learning.clipped_scaled": "gradients are clipped while a GradScaler's scale is on them",
    "learning.exploding": "an update makes the parameters many times as large, or not finite",
    "learning.frozen": "a whole part of the model is not trained",
    "learning.frozen_late": "parameters are trained that the model's own train() would freeze",
    "learning.made_in_call": "a module makes another one in each call, whose parameters are never trained",
    "learning.no_gradient": "no gradient reaches parameters that are to be trained",
    "learning.no_optimizer": "parameters with a gradient are in no optimizer",
    "learning.no_step": "an optimizer that never makes an update",
    "learning.not_cleared": "gradients are added to those of the step before",
    "learning.not_normalised": "gradients are accumulated and the loss is not divided",
    "learning.rate_zero": "the learning rate of an optimizer stays 0",
    "learning.scheduled_first": "a scheduler steps before the optimizer",
    "learning.send_without_backward": "a rank sends activations and runs no backward pass",
    "learning.undetached": "the loss of one optimizer's update reaches parameters of another one",
    "learning.unused_ddp": "parameters without a gradient under DistributedDataParallel",
    "learning.zero_gradient": "all gradients of a module are zero",
    "loss.not_logarithms": "a negative log likelihood of values that are not logarithms",
    "loss.raw_logits": "raw logits where a loss expects probabilities",
    "loss.replica_mean": "replicas add up gradients of a mean over their own samples",
    "loss.shuffled_apart": "samples and targets are in different orders",
    "loss.sigmoid_twice": "a sigmoid before a loss that applies it itself",
    "loss.softmax_axis": "a softmax over the batch, not over the classes",
    "loss.softmax_twice": "a softmax before a cross entropy that applies it itself",
    "memory.graph_kept": "a loss, or features, are kept with their graph: memory grows with every step",
    "mode.dropout": "dropout drops values in eval mode",
    "mode.eval": "the model, or a part of it, trains in eval mode",
    "mode.train": "the model is only evaluated, but in training mode",
    "placement.activation": "an activation was not moved to where it is needed",
    "placement.backward": "the backward pass runs on another device than the forward",
    "placement.buffer": "a buffer is on another device than its module",
    "placement.hidden": "modules are in a plain list: never moved, never trained",
    "placement.lopsided": "one GPU holds several times as much as another",
    "placement.one_device": "all parameters are on one GPU though there are several",
    "placement.optimizer_state": "the optimizer's state is on another device than its parameter",
    "placement.parameter": "a parameter is on another device than its module or the model",
    "placement.shared_gpu": "several ranks hold their models on one GPU though there is one for each",
    "placement.soft": "an op ran on another device than asked",
    "placement.unused": "GPUs hold nothing and compute nothing",
    "replicas.parted": "parameters that ranks have in common are no longer the same on all of them",
    "replicas.start": "ranks update parameters with the same gradients that did not start with the same values",
    "shape.batch_of_one": "a batch norm over a single value per channel",
    "shape.class_axis": "a cross entropy takes the wrong axis for the classes",
    "shape.loss_broadcast": "a loss compares every prediction with every target",
    "shape.sequence_first": "batch and sequence are swapped",
    "step.hangs": "the step does not end",
    "step.raised": "the step failed",
    "sync.bool": "an if on a tensor: the host waits",
    "sync.boolean_index": "indexing by a mask: the host waits",
    "sync.cpu": ".cpu(): the host waits",
    "sync.item": ".item() or float(): the host waits",
    "sync.numpy": ".numpy(): the host waits",
    "sync.race": "a copy to the host is read before it is complete",
    "sync.print": "a tensor is printed: the host waits",
    "type.float64_input": "an input is float64 in a program of float32",
    "type.float64_parameter": "parameters are float64 in a program of float32",
    "type.float_ids": "floats where an embedding needs integer ids",
    "type.ids_range": "an id that an embedding has no row for",
    "type.integer_input": "integers where a layer needs floats",
    "type.loss_scaling": "float16 without loss scaling",
    "type.mixed_parameters": "parameters of several float types",
}
