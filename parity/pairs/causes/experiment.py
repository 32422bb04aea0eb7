"""Ask the living models of a pair what they do differently, where the recorded traces do not tell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from parity.config.pair import UNKNOWN
from parity.core.errors import BackendError
from parity.diagnose.diagnosis import Examined
from parity.diagnose.experiment.causes import IN_CODE, causes
from parity.diagnose.experiment.description import (
    Description,
    description,
    each_once,
    is_without_line,
    with_causes,
    with_descriptions,
    with_lines,
)
from parity.diagnose.experiment.later import Parted
from parity.diagnose.experiment.later import both as both_of
from parity.diagnose.experiment.questions import Asked, Guilty, around_asked, earliest, guilty, is_forward, wider
from parity.diagnose.place import around
from parity.pairs.accepting.consequences import diagnosis_key
from parity.pairs.causes import further
from parity.pairs.causes.further import Questions, asked_about, explains
from parity.pairs.causes.sources import shown
from parity.pairs.file import PairFile
from parity.results import CaseResult, Cause
from parity.runtime import experiment, survey
from parity.runtime.experiment import Outcome, Question
from parity.runtime.job import ExperimentJob
from parity.runtime.runner import Worker, both
from parity.trace.keys import MODEL, plain
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

MOST_ALIKE: Final = 4  # further modules of a kind that are asked
SILENT: Final = Description("")
MOST_ENDS: Final = 4  # processes of a side that may end by what they try


class Experiment(NamedTuple):
    """Names the unknown causes of a diagnosis by experiments, for which both sides build their models again."""

    file: PairFile  # the pair
    backends: Sequence[Worker]  # torch's and Keras's
    folder: Path  # where the pair is recorded
    context: PairContext  # what Keras's side needs to build its model
    traces: tuple[Trace, Trace]  # the recordings, torch's first

    @np.errstate(all="ignore")  # the tensors may hold any numbers
    def name_causes(self, examined: Examined) -> None:
        """Replace the unknown causes of a result by those that experiments find."""
        if self.context.matching is None:
            return
        asked = self._asks(examined)
        unknown = guilty(examined.result, examined.unequal, examined.places, examined.first)
        try:
            by_place = {each.where: each for each in unknown}
            named = self._searched(asked, by_place)
            behind = None
            if examined.result.verdict == "diverged" and sum(map(bool, named.values())) == 1:
                behind, whole = further.besides_or_whole(asked, by_place, named, self._answers, self._named)
                named |= whole
                examined.result.causes = [
                    each for each in examined.result.causes if each.id == UNKNOWN or each.where not in whole
                ]
            for where, matches in named.items():
                if matches or len(examined.result.causes) > 1:  # what only follows from a named cause needs none
                    examined.result.causes = with_causes(examined.result.causes, where, matches)
            if behind == []:  # with what was found all outputs are the same: what else differs in between follows
                modules = self.traces[0].manifest.modules
                examined.result.causes = [
                    each for each in examined.result.causes if each.id != UNKNOWN or plain(each.where) not in modules
                ]
            if behind != [] or not all(cause.changes[0].kind in IN_CODE for each in named.values() for cause in each):
                examined.result.causes += self._alike(asked, {where for where in named if named[where]}, examined)
            known = {cause.id for cause in examined.result.causes}
            examined.result.causes += [cause for cause in behind or () if cause.id not in known]
            examined.result.causes = each_once(examined.result.causes)
            self._describe(asked, self._left(asked, unknown, named, examined), examined.result)
            self._add_lines(asked, examined)
        except BackendError as error:
            reason = f"the modules whose cause is unknown could not be called again: {error}"
            examined.result.not_compared.append(reason)

    @property
    def is_large(self) -> bool:
        """Return whether each run of the models takes long."""
        return survey.read(Path(self.context.survey)).is_large

    def behind(self, examined: Examined, later: tuple[Question, Question]) -> list[Cause]:
        """Return the causes of the forward pass's first difference, seen or not, if what is asked about follows."""
        first = earliest(examined.unequal, examined.places)
        if first is None or self.context.matching is None:
            return []
        named = self._searched(self._asks(examined), {first.where: first}).get(first.where, [])
        return named if further.is_behind(named, later, self._answers) else []

    def harmless(self, examined: Examined) -> set[str]:
        """Return the keys of the first tensors that differ while what torch's model returns does not depend on them."""
        if self.context.matching is None or not (question := further.to_pass(self._asks(examined))):
            return set()
        try:
            self._ask([[question], []])
        except BackendError:
            return set()
        (outcome,) = experiment.read(self._folder(0))
        return {each.key for each in question.passed[: outcome.harmless]}

    def _asks(self, examined: Examined) -> Asked:
        context = self.context
        assert context.matching is not None
        torch = survey.read(Path(context.survey))
        return Asked(torch, context.matching, examined.unequal, self.traces, context.mapping)

    def _left(
        self, asked: Asked, unknown: list[Guilty], named: dict[str, list[Cause]], examined: Examined
    ) -> dict[str, Guilty]:
        """Return the modules that remain without a cause; what only follows from a cause elsewhere needs none."""
        left = {each.where: each for each in unknown if each.where not in named}
        matches = [cause for causes_there in named.values() for cause in causes_there]
        for where in further.following(asked, matches, list(left.values()), self._answers) if matches and left else ():
            examined.result.causes = with_causes(examined.result.causes, where, [])
            del left[where]
        return left

    def _describe(self, asked: Asked, unknown: dict[str, Guilty], result: CaseResult) -> None:
        """Tell of the modules that remain at which lines both sides part, and what has to be changed there."""
        assert self.context.matching is not None
        compared = (*self.context.matching.modules_with_inputs, MODEL)
        described, questions = dict[str, Description](), Questions()
        # What is given to a module may be made around it; so it is at first sight where that cannot be compared.
        for place, tries_all in ((plain, False), (self._around, True), (lambda where: MODEL, True), (plain, True)):
            silent = {where: each for where, each in unknown.items() if not described.get(where, SILENT).words}
            silent = {where: each for where, each in silent.items() if tries_all or plain(where) in compared}
            questions |= (at_place := asked_about(asked, silent, place))
            described |= self.described(at_place)
        lines = {where: each.lines for where, each in described.items() if not each.named and all(each.lines)}
        near = {}
        for where, (torch, keras) in lines.items():
            near[where] = self.near(questions[where][0], torch), self.near(questions[where][1], keras)
        for where, matches in self._named(near).items():
            if matches:
                result.causes = with_causes(result.causes, where, matches)
        result.causes = with_descriptions(result.causes, described)

    def near(self, question: Question, lines: list[str]) -> Question:
        """Return a question about what stands near some lines, and about the modules that are made there."""
        folder = Path(question.own) / "survey"
        modules = survey.read(folder).modules if (folder / survey.FILE).exists() else []
        made = [each.path for line in lines for each in modules if each.made and each.made.source.endswith(line)]
        return replace(question, lines=lines, made=list(dict.fromkeys(made)))

    def _add_lines(self, asked: Asked, examined: Examined) -> None:
        """Tell where in the user's code the calls part, of causes that name no line of Keras's."""
        modules = self.traces[0].manifest.modules

        def is_asked(cause: Cause) -> bool:
            where = plain(cause.where)  # a layer of a framework's stands on the line that makes it
            is_composite = where == MODEL or any(path.startswith(f"{where}.") for path in modules)
            is_in_code = any(change.source for change in cause.changes)
            return is_without_line(cause) and (is_composite or is_in_code)

        result = examined.result
        without = guilty(result, examined.unequal, examined.places, examined.first, is_asked)
        described = self.described(asked_about(asked, {each.where: each for each in without}, plain))
        described = {where: each._replace(line=shown(each.line)) for where, each in described.items()}
        result.causes = with_lines(result.causes, described)

    def _searched(self, asked: Asked, unknown: dict[str, Guilty]) -> dict[str, list[Cause]]:
        """Return the causes that are found by the places for which they are asked; none where it is not at fault.

        What makes a difference may lie around a module, where its inputs cannot be compared: so where nothing is found,
        the module around it is asked, and at last the whole model. So it is where only several changes together do it,
        or the other side's mask: a setting around it explains more. Code around it is asked about if only that makes
        the inputs. The first module that differs, and does the same when it is given the same, has got something else.
        """
        assert self.context.matching is not None
        compared = self.context.matching.modules_with_inputs
        named: dict[str, list[Cause]] = {}
        partly: dict[str, list[Cause]] = {}
        before: Questions = {}
        for place in (plain, self._around, lambda where: MODEL):
            left = {where: each for where, each in unknown.items() if where not in named}
            apart = {where for where in left if plain(where) not in compared}
            narrow = left if place == plain else apart if place == self._around else ()
            questions = {
                where: both_sides if where in narrow else wider(both_sides)
                for where, both_sides in asked_about(asked, left, place).items()
                if not asked.is_behind(unknown[where].first, both_sides[1].module)
            }
            new = {where: each for where, each in questions.items() if wider(each) != before.get(where)}
            matches = self._named({where: around_asked(each, before.get(where)) for where, each in new.items()})
            partly = {where: each for where, each in matches.items() if each and not explains(each)} | partly
            named |= {where: each for where, each in matches.items() if explains(each)}
            gets_other = {where for where in apart if left[where].first == asked.forward[0]}
            named |= {where: [] for where in matches.keys() - partly.keys() - named.keys() - gets_other}
            before |= {where: wider(both_sides) for where, both_sides in questions.items()}
        named = further.confirmed(asked, unknown, named, self._answers, self._named)
        by_outcome = {} if named or self._vanishes(unknown) else further.by_model(asked, unknown, self._named)
        either = partly | {where: matches for where, matches in by_outcome.items() if explains(matches)} | named
        return {where: either[where] for where in unknown if where in either}

    def _vanishes(self, unknown: dict[str, Guilty]) -> bool:
        """Return whether a side's first tensor is one number everywhere: whatever makes it vanish would do."""
        first = [Parted(each.name, each.kind, each.name, each.step or 0) for _, each in list(unknown.values())[:1]]
        sides = [side for asked in first for side in both_of(asked, self.traces)]
        return any(side is not None and np.ptp(side) == 0 for side in sides)

    def _alike(self, asked: Asked, places: set[str], examined: Examined) -> list[Cause]:
        """Return the causes at further modules of the kinds for which one was found, and which no formula explains.

        A diagnosis tells the first unknown difference alone: those behind it may follow from it.
        """
        kinds = self.traces[0].manifest.modules
        kinds_found = {kinds.get(plain(where)) for where in places}
        known = {plain(cause.where) for cause in examined.result.causes}
        suspects: dict[str, Guilty] = {}
        for tensor in filter(is_forward, examined.unequal):
            where = plain(tensor.name)
            is_new = where not in known and diagnosis_key(tensor) not in examined.same
            if tensor.kind == "activation" and is_new and where in kinds and kinds[where] in kinds_found:
                suspects.setdefault(where, Guilty(where, tensor))
        questions = asked_about(asked, dict(list(suspects.items())[:MOST_ALIKE]), plain)
        return [cause for causes_there in self._named(questions).values() for cause in causes_there]

    def _around(self, where: str) -> str:
        """Return the recorded module around a module; the whole model if there is none."""
        return around(plain(where), self.traces[0].manifest.modules) or MODEL

    def _named(self, questions: Questions) -> dict[str, list[Cause]]:
        """Return the causes found by place; none of a place whose two modules do the same when given the same."""
        kinds = self.traces[0].manifest.modules
        named, innocent = {}, set()
        for where, outcomes in self.outcomes(questions).items():
            torch, keras = questions[where]
            named[where] = causes(where, kinds.get(plain(where), ""), *outcomes, (torch.module, keras.module))
            if all(outcome.same for outcome in outcomes):
                innocent.add(where)
        return {where: matches for where, matches in named.items() if matches or where in innocent}

    def outcomes(self, questions: Questions) -> dict[str, tuple[Outcome, Outcome]]:
        """Ask both sides for their settings first, then for the changes that make each reproduce the other."""
        if not questions:
            return {}
        informed: Questions = {}
        for where, outcomes in self._answers(questions).items():
            torch, keras = (
                replace(question, settings=theirs.settings, named=theirs.named, masks=theirs.masks)
                for question, theirs in zip(questions[where], outcomes[::-1], strict=True)
            )
            informed[where] = torch, keras
        return self._answers(informed)

    def _answers(self, questions: Questions) -> dict[str, tuple[Outcome, Outcome]]:
        """Return both sides' answers to each question. Raises BackendError if a side fails."""
        self._ask(list(zip(*questions.values(), strict=True)))
        torch, keras = (experiment.read(self._folder(side)) for side in (0, 1))
        return dict(zip(questions, zip(torch, keras, strict=True), strict=True))

    def described(self, questions: Questions) -> dict[str, Description]:
        """Return where both sides' calls part, where no change was found that explains the difference."""
        if not questions:
            return {}
        folders = [(self._folder(0) / str(number), self._folder(1) / str(number)) for number in range(len(questions))]
        asked = [
            (replace(torch, description=str(ours)), replace(keras, description=str(theirs), takes_theirs=True))
            for (torch, keras), (ours, theirs) in zip(questions.values(), folders, strict=True)
        ]
        self._ask(list(zip(*asked, strict=True)))
        weights = list(self.traces[0].of_kind("parameter", None).values())
        return dict(zip(questions, (description(*of_both, weights) for of_both in folders), strict=True))

    def _ask(self, questions: Sequence[Sequence[Question]]) -> None:
        """Let the sides answer, again without what has ended their process. Raises BackendError if one fails."""
        contexts = replace(self.context, mapping=None, matching=None), self.context
        jobs = {
            backend: ExperimentJob(
                case=self.file.case,
                folder=str(self._folder(side)),
                pair=contexts[side],
                questions=list(questions[side]),
            )
            for side, backend in enumerate(self.backends)
            if questions[side]
        }
        for again in range(MOST_ENDS, -1, -1):
            answers = both(jobs)
            jobs = {backend: job for backend, job in jobs.items() if answers[backend.name].status != "done"}
            if not jobs:
                break
            if not (again and all(experiment.blame(Path(job.folder)) for job in jobs.values())):
                raise BackendError(answers[next(iter(jobs)).name].message)

    def _folder(self, side: int) -> Path:
        return (self.folder / "experiments" / self.backends[side].name).absolute()
