"""Ask the living models of a pair what they do differently, where the recorded traces do not tell."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from parity.core.errors import BackendError
from parity.diagnose.diagnosis import Examined
from parity.diagnose.experiment.causes import causes, with_causes
from parity.diagnose.experiment.questions import Asked, guilty
from parity.diagnose.place import plain
from parity.pairs.file import PairFile
from parity.runtime.job import ExperimentJob
from parity.runtime.runner import Worker, both
from parity.trace import experiment, survey
from parity.trace.experiment import Outcome, Question
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

Experiment = Callable[[Examined], None]


def on_living_models(
    file: PairFile, backends: Sequence[Worker], folder: Path, context: PairContext, traces: tuple[Trace, Trace]
) -> Experiment:
    """Return the function that names the unknown causes of a diagnosis by experiments, on models that both build again.

    Args:
        file: the pair.
        backends: torch's and Keras's.
        folder: where the pair is recorded.
        context: what Keras's side needs to build its model.
        traces: the recordings, torch's first.
    """

    def experimented(examined: Examined) -> None:
        unknown = guilty(examined.result, examined.unequal, examined.places)
        if context.matching is None:
            return
        asked = Asked(survey.read(Path(context.survey)), context.matching, examined.unequal, traces)
        pairs = [(one.where, questions) for one in unknown if (questions := asked.questions(one))]
        if not pairs:
            return
        try:
            answers = _answers(file, backends, folder, context, [questions for _, questions in pairs])
        except BackendError as error:
            examined.result.not_compared.append(
                f"the modules whose cause is unknown could not be called again: {error}"
            )
            return
        modules = traces[0].manifest.modules
        for (where, asked_of), outcomes in zip(pairs, answers, strict=True):
            mine, theirs = (question.module for question in asked_of)
            if named := causes(where, modules.get(plain(where), ""), *outcomes, (mine, theirs)):
                examined.result.causes = with_causes(examined.result.causes, where, named)

    return experimented


def _answers(
    file: PairFile,
    backends: Sequence[Worker],
    folder: Path,
    context: PairContext,
    questions: list[tuple[Question, Question]],
) -> list[tuple[Outcome, Outcome]]:
    """Ask both sides for their settings first, then for the changes that make each reproduce the other.

    Raises BackendError if a side fails.
    """
    described = _asked(file, backends, folder / "settings", context, questions)
    told = [
        (
            msgspec.structs.replace(torch, settings=theirs.settings),
            msgspec.structs.replace(keras, settings=mine.settings),
        )
        for (torch, keras), (mine, theirs) in zip(questions, described, strict=True)
    ]
    return _asked(file, backends, folder / "experiments", context, told)


def _asked(
    file: PairFile,
    backends: Sequence[Worker],
    folder: Path,
    context: PairContext,
    questions: list[tuple[Question, Question]],
) -> list[tuple[Outcome, Outcome]]:
    """Return both sides' answers to each question. Raises BackendError if a side fails."""
    torch_context = msgspec.structs.replace(context, mapping=None, matching=None)
    jobs = {
        backend: ExperimentJob(
            case=file.case,
            folder=str((folder / backend.name).absolute()),
            pair=torch_context if backend.name == "torch" else context,
            questions=[torch if backend.name == "torch" else keras for torch, keras in questions],
        )
        for backend in backends
    }
    for answer in both(jobs).values():
        if answer.status != "done":
            raise BackendError(answer.message)
    torch, keras = (experiment.read(folder / name) for name in ("torch", "keras"))
    return list(zip(torch, keras, strict=True))
