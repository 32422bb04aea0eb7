"""Ask the living models of a pair what they do differently, where the recorded traces do not tell."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from parity.core.errors import BackendError
from parity.diagnose.diagnosis import Examined
from parity.diagnose.entries import Cause
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


class Experiment(NamedTuple):
    """Names the unknown causes of a diagnosis by experiments, for which both sides build their models again.

    Attributes:
        file: the pair.
        backends: torch's and Keras's.
        folder: where the pair is recorded.
        context: what Keras's side needs to build its model.
        traces: the recordings, torch's first.
    """

    file: PairFile
    backends: Sequence[Worker]
    folder: Path
    context: PairContext
    traces: tuple[Trace, Trace]

    def name_causes(self, examined: Examined) -> None:
        """Replace the unknown causes of a result by those that experiments find."""
        unknown = guilty(examined.result, examined.unequal, examined.places)
        if self.context.matching is None:
            return
        asked = Asked(survey.read(Path(self.context.survey)), self.context.matching, examined.unequal, self.traces)
        questions = {one.where: both_sides for one in unknown if (both_sides := asked.questions(one))}
        try:
            named = self._named(questions)
            # What makes the difference may lie around the module, where its inputs cannot be compared.
            wider = {where: _wider(both_sides) for where, both_sides in questions.items() if where not in named}
            named |= self._named({where: wide for where, wide in wider.items() if wide != questions[where]})
        except BackendError as error:
            reason = f"the modules whose cause is unknown could not be called again: {error}"
            examined.result.not_compared.append(reason)
            return
        for where, found in named.items():
            examined.result.causes = with_causes(examined.result.causes, where, found)

    def _named(self, questions: dict[str, tuple[Question, Question]]) -> dict[str, list[Cause]]:
        """Return the causes that are found, by the place for which they are asked."""
        kinds = self.traces[0].manifest.modules
        named = {}
        for where, outcomes in self._outcomes(questions).items():
            torch, keras = questions[where]
            named[where] = causes(where, kinds.get(plain(where), ""), *outcomes, (torch.module, keras.module))
        return {where: found for where, found in named.items() if found}

    def _outcomes(self, questions: dict[str, tuple[Question, Question]]) -> dict[str, tuple[Outcome, Outcome]]:
        """Ask both sides for their settings first, then for the changes that make each reproduce the other."""
        if not questions:
            return {}
        told = {
            where: _with_settings(questions[where], torch, keras)
            for where, (torch, keras) in self._answers(questions).items()
        }
        return self._answers(told)

    def _answers(self, questions: dict[str, tuple[Question, Question]]) -> dict[str, tuple[Outcome, Outcome]]:
        """Return both sides' answers to each question. Raises BackendError if a side fails."""
        folders = [self.folder / "experiments" / backend.name for backend in self.backends]
        contexts = replace(self.context, mapping=None, matching=None), self.context
        jobs = {
            backend: ExperimentJob(
                case=self.file.case,
                folder=str(folders[side].absolute()),
                pair=contexts[side],
                questions=[both_sides[side] for both_sides in questions.values()],
            )
            for side, backend in enumerate(self.backends)
        }
        for answer in both(jobs).values():
            if answer.status != "done":
                raise BackendError(answer.message)
        torch, keras = map(experiment.read, folders)
        return dict(zip(questions, zip(torch, keras, strict=True), strict=True))


def _with_settings(questions: tuple[Question, Question], torch: Outcome, keras: Outcome) -> tuple[Question, Question]:
    """Return the questions with the settings that the other side has."""
    return replace(questions[0], settings=keras.settings), replace(questions[1], settings=torch.settings)


def _wider(questions: tuple[Question, Question]) -> tuple[Question, Question]:
    """Return the questions with the whole model as the place in which to look."""
    torch, keras = questions
    return replace(torch, module=""), replace(keras, module="")
