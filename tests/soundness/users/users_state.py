"""Rows: what models, losses and steps remember. Counts of Python's stand still in the graph that fit traces."""

from typing import Any, Literal

from users_rows import Row, floats

Truth = Literal["same", "differs"]
X = {"x": floats(8, 8)}
SEQUENCES = {"x": floats(4, 5, 8)}
TRAIN = {"learning_rate": 0.25, "steps": 4}


def _row(name: str, truth: Truth, why: str, torch: str, keras: str, inputs: Any = None, **rest: Any) -> Row:
    """Trained; `losses`: torch's and Keras's."""
    train = rest.pop("train", TRAIN)
    if losses := rest.pop("losses", ()):
        train = train | {"torch_loss": losses[0], "keras_loss": losses[1]}
    return Row(name, "state", truth, why, inputs or X, torch, keras, train, **rest)


def _called(name: str, truth: Truth, why: str, torch: str, keras: str, **rest: Any) -> Row:
    return _row(name, truth, why, torch, keras, train={}, **rest)


def _numbered(name: str, truth: Truth, why: str, kind: str, torch: str = "Network", **kwargs: Any) -> Row:
    """`kind`: of what counts in Keras's compute_loss."""
    return _row(f"numbered_{name}", truth, why, torch, "numbered", train=TRAIN | {"torch_step": "stepped"},
        keras_kwargs={"kind": kind} | kwargs)  # fmt: skip


COUNT = {"ignore": {"keras": ["steps"]}}  # a count that is an attribute in torch is no weight there
FROZEN = "Python's count is fixed where fit traces its step"
KINDS = ["Attribute", "Listed", "Counted", "OfClass", "OfModule", "OfDefault"]
STATE = [
    _row("count_weight", "same", "a buffer and a weight count alike", "Buffer", "Weight"),
    _row("count_whole", "same", "an attribute, and a whole number that build makes", "Attribute", "Whole"),
    _row("count_tensorflow", "same", "a variable that Keras does not know of", "Buffer", "OfTensorFlow"),
    _row("count_hidden", "same", "a variable within an object of one's own", "Attribute", "hidden"),
    *(_row(f"count_{kind.lower()}", "differs", FROZEN, kind, kind) for kind in KINDS),
    _row("count_of_closure", "differs", FROZEN, "of_closure", "OfClosure"),
    _row("count_built", "differs", FROZEN, "Attribute", "BuiltAttribute"),
    _row("count_of_class_variable", "same", "torch's class counts, Keras's weight", "OfClass", "Weight", fields=COUNT),
    _row("count_of_module_variable", "same", "globals of both modules, one of them a variable", "OfModule",
        "OfModuleVariable"),
    _row("count_of_default_variable", "same", "torch's default argument counts, Keras's weight", "OfDefault",
        "Weight", fields=COUNT),
    _row("count_of_closure_variable", "same", "torch's closure counts, Keras's weight", "of_closure", "OfVariable",
        fields=COUNT),
    _row("count_listed_variable", "same", "torch's list grows, Keras's weight counts", "Listed", "Whole", fields=COUNT),
    _row("count_late", "differs", "Keras counts after the factor is taken", "Buffer", "Late", fields=COUNT),
    _row("count_missing", "differs", "only torch counts", "Buffer", "Network", before=False),
    _row("count_always", "same", "evaluations count as well", "Always", "Always"),
    _row("count_always_there", "differs", "only torch counts evaluations as well", "Always", "InTraining",
        before=False),
    _row("toggle", "same", "a truth value and a variable take turns", "Toggled", "ToggledVariable",
        fields={"ignore": {"keras": ["even"]}}),
    _row("toggle_frozen", "differs", FROZEN, "Toggled", "Toggled"),
    _row("draws", "same", "NumPy's numbers, drawn before and taken one by one", "Drawn", "DrawnBefore", fields=COUNT),
    _row("draws_frozen", "differs", "NumPy draws once, where fit traces its step", "Drawn", "Drawn"),
    _row("first_batch", "same", "the first batch sets shift and scale", "Normed", "FirstBatch",
        fields={"ignore": {"keras": ["ready"]}}),
    _row("first_batch_frozen", "differs", "every batch sets them, as the graph does not know the first", "Normed",
        "FirstBatch", keras_kwargs={"variable": False}),
    _row("centre", "same", "a running mean", "Centre", "Centre"),
    _row("centre_early", "same", "a running mean that moves before it is used", "Centre", "Centre",
        torch_kwargs={"early": True}, keras_kwargs={"early": True}),
    _row("centre_order", "differs", "Keras's mean moves before it is used", "Centre", "Centre",
        keras_kwargs={"early": True}),
    _row("centre_momentum", "differs", "the momentum is the other share", "Centre", "Centre",
        keras_kwargs={"momentum": 0.25}),
    _row("centre_first", "differs", "the running means begin elsewhere", "Centre", "Centre",
        keras_kwargs={"first": "ones"}, before=False),
    _row("centre_first_both", "same", "both running means begin at one", "Centre", "Centre",
        torch_kwargs={"first": 1.0}, keras_kwargs={"first": "ones"}),
    _row("remembering", "same", "the batch before is added", "Remembering", "Remembering", varied=False),
    _row("remembering_share", "differs", "a smaller share of the batch before", "Remembering", "Remembering",
        keras_kwargs={"factor": 0.25}),
    _row("largest", "same", "the largest value so far", "Largest", "largest"),
    _row("largest_of_batch", "differs", "the largest value of this batch", "Largest", "largest",
        keras_kwargs={"kept": False}),
    _row("recurrent", "same", "stateful=True goes on where the last batch ended", "Recurrent", "recurrent", SEQUENCES,
        varied=False),
    _row("recurrent_anew", "same", "both begin anew", "Recurrent", "recurrent", SEQUENCES,
        torch_kwargs={"kept": False}, keras_kwargs={"stateful": False}),
    _row("recurrent_here", "differs", "only torch goes on where the last batch ended", "Recurrent", "recurrent",
        SEQUENCES, keras_kwargs={"stateful": False}),
    _row("recurrent_there", "differs", "only Keras goes on where the last batch ended", "Recurrent", "recurrent",
        SEQUENCES, torch_kwargs={"kept": False}),
    _row("annealed", "differs", FROZEN, "Network", "Network", losses=("annealed", "annealed")),
    _row("annealed_variable", "same", "both losses count, one by a variable", "Network", "Network",
        losses=("annealed_twice", "annealed_variable")),
    _row("annealed_loss", "differs", FROZEN, "Network", "Network", losses=("annealed_twice", "AnnealedLoss")),
    _row("stepped", "same", "the optimizer counts the train_step's calls", "Network", "Stepped",
        train=TRAIN | {"torch_step": "stepped"}),
    _row("stepped_ahead", "differs", "the train_step is one ahead", "Network", "SteppedTwice",
        train=TRAIN | {"torch_step": "stepped"}),
    _row("stepped_attribute", "differs", FROZEN, "Network", "SteppedAttribute",
        train=TRAIN | {"torch_step": "stepped"}),
    _numbered("namespace", "differs", FROZEN, "OfNamespace"),
    _numbered("namespace_eagerly", "same", "run_eagerly counts", "OfNamespace", is_eager=True),
    _numbered("cycle", "differs", FROZEN, "OfCycle"),
    _numbered("partial", "differs", FROZEN, "OfPartial"),
    _numbered("partial_eagerly", "same", "run_eagerly counts", "OfPartial", is_eager=True),
    _numbered("local", "differs", FROZEN, "OfLocal"),
    _row("evaluated", "differs", FROZEN, "Evaluated", "evaluated"),
    _row("evaluated_eagerly", "same", "run_eagerly counts", "Evaluated", "evaluated", keras_kwargs={"is_eager": True}),
    _numbered("dropout", "differs", FROZEN, "BesideDropout", "BesideDropout"),
    _numbered("dropout_eagerly", "same", "run_eagerly counts", "BesideDropout", "BesideDropout", is_eager=True),
    _row("stepped_by_hand", "same", "a step that is not traced counts", "Network", "Network",
        train=TRAIN | {"torch_step": "stepped", "keras_step": "by_hand"}),
    _row("stepped_traced", "differs", "a step that is a tf.function does not count", "Network", "Network",
        train=TRAIN | {"torch_step": "stepped", "keras_step": "traced"}),
    _called("calls_counted", "same", "both count plain calls", "Always", "Always"),
    _called("calls_counted_there", "differs", "only torch counts: the second call differs", "Always", "Network"),
    _called("calls_cached", "same", "the first batch's mean is kept", "Caching", "Caching"),
    _called("calls_cached_there", "differs", "only torch keeps it: the second call differs", "Caching", "Caching",
        keras_kwargs={"cached": False}),
    _called("calls_length", "differs", "Keras keeps the first length", "Averaging", "Averaging",
        inputs=SEQUENCES, grows=True),
    _called("calls_length_both", "same", "both keep the first length", "Averaging", "Averaging", inputs=SEQUENCES,
        torch_kwargs={"cached": True}, grows=True),
    _called("calls_traced", "differs", "a tf.function does not count: the second call differs", "Called",
        "Traced"),
    _called("calls_traced_variable", "same", "a variable counts in a tf.function", "Always", "TracedVariable"),
    _called("calls_remembered", "same", "the call before is added", "Remembering", "Remembering", varied=False),
    _called("calls_remembered_share", "differs", "a smaller share: the second call differs", "Remembering",
        "Remembering", keras_kwargs={"factor": 0.25}),
]  # fmt: skip
