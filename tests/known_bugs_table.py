"""The bugs of docs/known_bugs.md that are kept as programs in tests/programs/papers/, and what the doctor says of each.

The line at fault ends with the comment `# fault` in the program itself.
"""

from typing import NamedTuple


class KnownBug(NamedTuple):
    """A program with the mistake of a published bug; its repaired twin is `build_right` and `step_right`.

    Attributes:
        finding: the id of what is said; "" if nothing is said.
        where: the module that the finding names.
        hangs: whether the faulty program never ends.
    """

    name: str
    finding: str
    where: str
    inputs: list[str]
    ranks: int = 1
    severity: str = "error"
    hangs: bool = False


X = ["x=float32[8,16]"]
IMAGES = ["images=float32[4,1,28,28]", "labels=int64[4]<10"]
PHOTOS = ["images=float32[4,3,8,8]", "labels=int64[4]<10"]

BUGS = [
    KnownBug("clip_by_rank", "replicas.parted", "0", X, ranks=2),
    KnownBug("moved_after_ddp", "replicas.parted", "(model)", X, ranks=2),
    KnownBug("ddp_sometimes", "replicas.parted", "(model)", X, ranks=2),
    KnownBug("lossy_reduce", "replicas.parted", "0", X, ranks=2),
    KnownBug("expert_skipped", "collective.order", "", X, ranks=2, hangs=True),
    KnownBug("cleared_never", "learning.not_cleared", "", IMAGES),
    KnownBug("frozen_head", "learning.frozen", "stem", PHOTOS, severity="note"),
    KnownBug("eval_dropout", "mode.dropout", "attention", ["x=float32[2,6,16]"], severity="warning"),
    KnownBug("late_freeze", "learning.frozen_late", "stages.0", X, severity="warning"),
    KnownBug("same_augmentation", "input.repeated", "", ["x=float32[1]"], severity="warning"),
    KnownBug("early_optimizer", "learning.no_optimizer", "(model)", X),
    KnownBug("router_apart", "replicas.parted", "1.router", X, ranks=2, severity="warning"),
    KnownBug("norm_apart", "replicas.parted", "final_norm", ["ids=int64[2,8]<50"], ranks=2, severity="warning"),
    KnownBug("stale_shards", "replicas.parted", "(model)", X, ranks=2),
]

# Bugs of which nothing is said, as docs/known_bugs.md admits.
NOT_SEEN = [
    KnownBug("spectral_eval", "", "", X),
]

# Programs without a fault that do nearly the same.
SOUND = [
    KnownBug("local_updates", "", "", X, ranks=2),
    KnownBug("gathered_late", "", "", X, ranks=2),
    KnownBug("experts", "", "", X, ranks=2),
]
