"""Repair a port: try the edits that may remove its causes, keep those that do, and write them as a diff.

Every trial is a whole comparison of the pair, in a copy of the user's folder. An edit is kept if its causes are gone
and nothing new came; the port is then read anew, until it matches or no edit is left to try.
"""

import itertools
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from parity.config.pair import UNNAMED
from parity.core.errors import UsageError
from parity.core.groups import by_key
from parity.core.wording import listed
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.repair import candidates
from parity.repair.candidates import Port
from parity.repair.edit import Edit, copy_folder, diff_of, spliced
from parity.results import CaseResult, Cause, Repair, TriedEdit
from parity.runtime.runner import Worker

MOST_TRIALS = 24  # comparisons; each takes as long as that of the pair
Identity = tuple[Any, ...]
Wishes = dict[Edit, list[Cause]]  # edits, each with the causes that it is to remove
Key = tuple[str, str]
Outcome = Literal["accepted", "uncertain", "refused"]
CLEAN: Final = ("match", "subprecision")


class Decision(NamedTuple):
    """What came of an edit, and why it was not accepted.

    It is uncertain if a cause came to light that may have been there before, behind the one that is repaired: one
    without a name, or one that was found by experiment, which is made at the first divergence alone.
    """

    outcome: Outcome
    why: str = ""


def keys(causes: Iterable[Cause]) -> set[Key]:
    """Return the id and the place of every cause."""
    return set(map(key, causes))


def key(cause: Cause) -> Key:
    """Return the id and the place of a cause."""
    return cause.id, cause.where


def decide(before: CaseResult, after: CaseResult, meant: set[Key]) -> Decision:
    """Return what came of edits that were to remove the causes in `meant`."""
    if after.verdict == "error":
        return Decision("refused", f"the port no longer runs: {after.reason.splitlines()[0]}")
    if left := sorted(meant & keys(after.causes)):
        return Decision("refused", f"{_said(left[0])} is still there")
    if before.verdict == "diverged" and after.verdict in CLEAN:
        return _varied(before, after) or Decision("accepted")  # what is left was there before, and float32 hides it
    new = sorted(keys(after.causes) - keys(before.causes))
    by_experiment = keys(cause for cause in after.causes if cause.id in UNNAMED or cause.changes)
    if named := [each for each in new if each not in by_experiment]:
        return Decision("refused", f"it brings in {_said(named[0])}")
    if new and (before.verdict in CLEAN or {where for _, where in new} & {at for _, at in meant}):
        return Decision("refused", f"it brings in {_said(new[0])}")
    if refused := _varied(before, after):
        return refused
    return Decision("uncertain", f"behind it is {_said(new[0])}") if new else Decision("accepted")


def _varied(before: CaseResult, after: CaseResult) -> Decision | None:
    """Return the refusal of edits that make the pair diverge on a variation of its inputs; None if they do not."""
    failing = _failing(after) - _failing(before)
    return Decision("refused", f"the pair now diverges on {min(failing)}") if before.variations and failing else None


def _failing(result: CaseResult) -> set[str]:
    return {each.name for each in result.variations if each.verdict not in (*CLEAN, "skipped")}


def _said(cause: Key) -> str:
    return f"{cause[0]} at {cause[1]}"


class State(NamedTuple):
    """The port with the edits so far: the changed files, Keras's arguments, and the comparison of the pair with it."""

    changed: dict[Path, bytes]
    arguments: dict[str, Any]
    result: CaseResult
    port: Port | None


class Repairing:
    """The search for the edits that repair a pair, with copies in `scratch`; `varied`: on varied inputs as well."""

    def __init__(self, file: PairFile, sides: Sequence[Worker], scratch: Path, varied: bool) -> None:
        self.file, self.sides, self.scratch, self.varied = file, sides, scratch, varied
        self.root = root(file)
        self.tried: list[TriedEdit] = []
        self.accepted: list[str] = []
        self._refused: set[Identity] = set()
        self._uncertain: set[Identity] = set()
        self._trials = 0

    def run(self, result: CaseResult, folder: Path, diff: Path) -> Repair:
        """Repair the port of a pair whose traces are in `folder`, and write the diff. Raises UsageError."""
        state = State({}, {}, result, candidates.read(self.file, self.root, folder))
        while (wishes := self._wishes(state)) and self._trials < MOST_TRIALS:
            state = self._improved(state, wishes)
        try:
            diff.write_bytes(diff_of(self.root, state.changed, self.accepted).encode())
        except OSError as error:
            raise UsageError(f"--repair: {diff} cannot be written: {error.strerror}") from None
        verdict, left = state.result.verdict, self._left(state)
        return Repair(file=str(diff), root=str(self.root), verdict=verdict, edits=self.tried, left=left)

    def _wishes(self, state: State) -> Wishes:
        """Return for each cause the first edit that was not refused."""
        return by_key((edits[0], cause) for cause in state.result.causes if (edits := self._edits(state, cause)))

    def _edits(self, state: State, cause: Cause) -> list[Edit]:
        """Return the edits that were not refused, last those that are accepted only if no other edit is better."""
        edits = candidates.edits(cause, state.port) if state.port else []
        left = [each for each in edits if _identity(each, cause) not in self._refused]
        return sorted(left, key=lambda each: _identity(each, cause) in self._uncertain)

    def _improved(self, state: State, wishes: Wishes) -> State:
        """Return the state with the edits that are accepted: all together, or else one of them."""
        if len(wishes) > 1 and (together := self._try(state, wishes)) and together[1].outcome == "accepted":
            for edit, causes in wishes.items():
                self._note(edit, causes, together[1])
            return together[0]
        for edit, causes in wishes.items():
            identities = {_identity(edit, cause) for cause in causes}
            trial = self._try(state, {edit: causes})
            if trial is None and self._trials >= MOST_TRIALS:
                return state
            after, decision = trial or (state, Decision("refused", "its changes overlap"))
            better = (each for cause in causes for each in self._edits(state, cause) if each != edit)
            if decision.outcome == "uncertain" and not identities <= self._uncertain and any(better):
                self._uncertain |= identities
                continue
            self._note(edit, causes, decision)
            if decision.outcome != "refused":
                return after
            self._refused |= identities
        return state

    def _try(self, state: State, wishes: Wishes) -> tuple[State, Decision] | None:
        """Compare the pair with some edits; None if they cannot be made together, or there were too many trials."""
        changed = self._changed(state, list(wishes))
        if changed is None or self._trials >= MOST_TRIALS:
            return None
        self._trials += 1
        arguments = state.arguments | {edit.key: edit.value for edit in wishes if edit.key}
        folder = self.scratch / f"trial{self._trials}"
        copy_folder(self.root, folder / "copy", changed)
        file = moved(self.file, self.root, folder / "copy", arguments)
        try:
            result = compared(file, self.sides, folder / "traces", self.varied)
        except UsageError as error:
            result = CaseResult(case=self.file.case.name, verdict="error", reason=str(error))
        result.reason = result.reason.replace(f"{folder / 'copy'}/", "")
        decision = decide(state.result, result, keys(itertools.chain(*wishes.values())))
        after = State(changed, arguments, result, candidates.read(file, folder / "copy", folder / "traces"))
        shutil.rmtree(folder / "traces", ignore_errors=True)  # the next trial may need the disk space
        return after, decision

    def _changed(self, state: State, edits: list[Edit]) -> dict[Path, bytes] | None:
        """Return the contents of all files with the edits; None if they overlap."""
        changed = dict(state.changed)
        for path in {edit.path for edit in edits}:
            splices = [splice for edit in edits if edit.path == path for splice in edit.splices]
            try:
                changed[path] = spliced(changed.get(path) or (self.root / path).read_bytes(), splices)
            except ValueError:
                return None
        return changed

    def _note(self, edit: Edit, causes: list[Cause], decision: Decision) -> None:
        cause, accepted = causes[0], decision.outcome != "refused"
        where = listed([each.where for each in causes], 1)
        self.tried.append(
            TriedEdit(
                file=edit.path.as_posix(),
                line=edit.line,
                cause=cause.id,
                where=where,
                before=edit.source[0],
                after=edit.source[1],
                accepted=accepted,
                why="" if accepted else decision.why,
            )
        )
        if accepted:
            values = f"torch {cause.torch}, keras {cause.keras}"
            self.accepted.append(f"{edit.path.as_posix()}:{edit.line}: {cause.id} at {where}: {values}")

    def _left(self, state: State) -> list[str]:
        if self._trials >= MOST_TRIALS:
            return [f"the search ended after {MOST_TRIALS} comparisons"]
        if not state.port:
            return []
        refused = {(edit.cause, edit.where.partition(" ")[0]) for edit in self.tried if not edit.accepted}
        left = []
        for cause in state.result.causes:
            why = "all edits were refused" if key(cause) in refused else candidates.why_none(cause, state.port)
            left.append(f"{_said(key(cause))}: {why}")
        return list(dict.fromkeys(left))


def _identity(edit: Edit, cause: Cause) -> Identity:
    """Return what tells an edit for a cause from others, also when other parts of its file have changed."""
    return cause.id, cause.where, edit.path, edit.line, edit.source


def root(file: PairFile) -> Path:
    """Return the folder of the user's that Keras's module is imported from."""
    top = file.pair.keras.partition(":")[0].partition(".")[0]
    homes = (folder for folder in map(Path, file.search) if (folder / top).is_dir() or (folder / f"{top}.py").is_file())
    return next(homes, Path(file.search[0]))


def moved(file: PairFile, old: Path, new: Path, arguments: dict[str, Any]) -> PairFile:
    """Return the pair with the copy of its folder in place of the folder, and further arguments for Keras's builder."""

    def there(path: Path) -> Path:
        return new / path.relative_to(old) if path.is_relative_to(old) else path

    model = msgspec.structs.replace(file.pair, keras_kwargs=file.pair.keras_kwargs | arguments)
    search = [str(there(Path(folder))) for folder in file.search]
    path = there(file.path.absolute()) if file.path else None
    return file._replace(case=msgspec.structs.replace(file.case, model=model), search=search, path=path)
