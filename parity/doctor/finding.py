"""Findings: what the doctor reports about a program; and the ids of all findings."""

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
    return make_finding(severity, name, place.module, place.source, message, fix, line)


# What each means is in docs/doctor.md.
LISTED = """
    autograd.in_place autograd.state_kept collective.left collective.order collective.shape copy.constant copy.implicit
    copy.parameter finite.backward finite.forward function.compiled function.eager function.frozen function.predict
    function.retraced gpu.not_pretended input.copied_again input.device input.not_contiguous input.not_pinned
    input.repeated learning.cleared_early learning.clipped_in_vain learning.clipped_scaled learning.exploding
    learning.frozen learning.frozen_late learning.made_in_call learning.no_gradient learning.no_optimizer
    learning.no_step learning.not_cleared learning.not_normalised learning.rate_zero learning.scheduled_first
    learning.send_without_backward learning.undetached learning.unused_ddp learning.zero_gradient loss.not_logarithms
    loss.raw_logits loss.replica_mean loss.shuffled_apart loss.sigmoid_twice loss.softmax_axis loss.softmax_twice
    memory.graph_kept mode.dropout mode.eval mode.train placement.activation placement.backward placement.buffer
    placement.hidden placement.lopsided placement.one_device placement.optimizer_state placement.parameter
    placement.shared_gpu placement.soft placement.unused replicas.parted replicas.start shape.batch_of_one
    shape.class_axis shape.loss_broadcast shape.sequence_first step.hangs step.raised sync.bool sync.boolean_index
    sync.cpu sync.item sync.numpy sync.race sync.print type.float64_input type.float64_parameter type.float_ids
    type.ids_range type.integer_input type.loss_scaling type.mixed_parameters
"""
IDS = tuple(LISTED.split())
