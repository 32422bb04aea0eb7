"""List the cases that faults are planted on: small and few, since each is also recorded without a fault."""

from typing import Any, NamedTuple


class At(NamedTuple):
    """A built-in case, or that of the specimen, with changes that make it small or let a fault show."""

    case: str
    changes: dict[str, Any] = {}


SMALL = {
    "vocabulary": 100, "d_model": 32, "feed_forward": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0,
}  # fmt: skip
PATCHES = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}}

STACK = At("linear_stack/single", {"model": {"width": 64, "layers": 3}})
BLOCK = At("simple_block/single")
ADAM = At("simple_block/single@adam")
ADAMW = At("simple_block/single@adamw")
CLIP = At("simple_block/single@clip")
SCHEDULE = At("simple_block/single@schedule")
ACCUMULATE = At("simple_block/single@accumulate", {"data": {"batch": 30}})  # equal micro-batches
TWO_STEPS = At("simple_block/single", {"steps": 2})
DDP = At("simple_block/ddp")
DDP_CLIP = At("simple_block/ddp@clip")
UNEVEN = At("simple_block/ddp@uneven")
ALL_REDUCE = At("simple_block/all_reduce", {"steps": 4})  # the last of which is in the second epoch
REGRESSION = At("two_linear/single")
CLASSES = At("two_linear/single@cross_entropy")
AS_MANY_SAMPLES = At("two_linear/single@cross_entropy", {"data": {"batch": 10}})  # as classes
SATURATED = At("two_linear/single@cross_entropy", {"weight_scale": {"linear1.weight": 50.0, "linear2.weight": 50.0}})
STAGES = At("two_linear/send_recv")
RESIDUAL = At("residual_block/single", PATCHES)
RESIDUAL_DDP = At("residual_block/ddp", PATCHES | {"steps": 2})
BRANCHES = At("residual_block/branch_parallel", PATCHES)
TRANSFORMER = At("transformer/single", {"model": SMALL, "data": {"batch": 4}})
DROPOUT = At("transformer/single", {"model": SMALL | {"dropout": 0.1}, "data": {"batch": 4}, "steps": 2})
DROPOUT_DDP = At("transformer/ddp", DROPOUT.changes)
MANY_WORDS = At("transformer/single", {"model": SMALL | {"vocabulary": 1000}, "data": {"batch": 4}})
CAUSAL = At("transformer/single", {"model": SMALL | {"causal": True}, "data": {"batch": 4}})
SPECIMEN = At("specimen/single")
