"""Notice inputs that both sides get in the same axes although their first layers take other ones."""

from collections.abc import Iterator

from parity.config.pair import Pair
from parity.trace.survey import Survey

SPACE = ("w", "h w", "d h w")
KINDS = ("conv", "max_pool", "average_pool", "depthwise", "separable")  # how kinds begin that have a channels' axis


def unlike_axes(pair: Pair, torch: Survey, keras: Survey | None = None) -> Iterator[str]:
    """Yield a sentence on each input without keras_layout that torch's layers take with channels first, Keras's last.

    Without Keras's survey, as when its model could not be called, its layers are taken to be as Keras has them.
    """
    for name, given in pair.inputs.items():
        shape, rank = tuple(given.shape), len(given.shape)
        if name in pair.loss_inputs or given.keras_layout or not 3 <= rank <= 5:
            continue
        first, last = _taking(torch, shape), _taking(keras, shape) if keras else "its layers"
        if first and last:
            space = SPACE[rank - 3]
            yield (
                f"[inputs.{name}] has no keras_layout, so that both models get it as {list(shape)}: torch's {first} "
                f"takes channels first, Keras's {last} last; perhaps the file should say "
                f'keras_layout = "n c {space} -> n {space} c"'
            )


def _taking(survey: Survey, shape: tuple[int, ...]) -> str:
    """Return the first layer with channels that takes a tensor of this shape; "" if there is none.

    For Keras only a layer that takes channels last counts.
    """
    by_path = {module.path: module for module in survey.modules}
    for path, arguments in survey.arguments.items():
        module = by_path.get(path)
        takes_it = module is not None and module.kind.startswith(KINDS) and arguments[:1] == [shape]
        if module and takes_it and module.facts.get("data_format", "channels_last") == "channels_last":
            return path or "model"
    return ""
