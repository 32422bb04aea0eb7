"""Both backends, kept alive for the whole session; these tests import no framework into their own process."""

import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from parity.config import cases
from parity.config.schema import Case
from parity.diagnose.diagnosis import explained
from parity.results import CaseResult
from parity.runtime.backend import Backend, running
from parity.runtime.job import RUNS, Job
from parity.runtime.runner import both
from parity.trace.manifest import Trace

pytest_plugins = ["sides"]

# The tests start hundreds of processes. Where this is set, each of them compiles all that it imports of the project.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

Compare = Callable[..., CaseResult]

TESTS = Path(__file__).parent
# What takes longest, the longest first.
LONG = (
    "test_documents.py", "soundness/users/test_users.py", "test_pairs.py", "soundness/test_soundness.py",
    "public/test_public.py", "test_strategies.py", "test_doctor_programs.py", "soundness/test_truth.py",
    "test_catalogue.py", "parity/test_packages.py",
)  # fmt: skip
# Of files that take minutes the default run has only those tests whose names have one of these parts: something of
# everything that the file is about. The others are marked slow.
SAMPLES = {
    "keras_impl/test_inputs.py": ("residual_block/single]", "kind"),
    "keras_impl/test_strategies.py": (
        "[ddp-simple",
        "[hybrid-two_linear",
        "replicas",
        "replica_0_unless",
        "orders",
        "shards",
    ),
    "test_advise_traffic.py": ("keras-", "torch-residual_block/send_recv"),
    "test_by_hand.py": (),
    "test_catalogue.py": (),
    "test_doctor_cases.py": ("simple_block/single]", "two_linear/send_recv]"),
    "test_doctor_installed.py": ("keras_places",),
    "test_doctor_programs.py": ("torch-lopsided", "torch-loss_by_hand", "clean[keras-loss_by_hand"),
    "test_gpu.py": ("without_a_gpu",),
    "test_honest.py": ("simple_block", "clipping", "class", "micro-batches"),
    "test_isolation.py": ("imports_no_framework", "report/terminal"),
    "test_known_bugs.py": ("where_it_is[router_apart]", "said[eval_dropout]", "by_comparison", "the_page_says"),
    "test_pair_accepting.py": ("layout", "not_looked_at"),
    "test_pair_alarms.py": ("right_ports[calls", "may_be_wrong"),
    "test_pair_axes.py": ("[conv-32",),
    "test_pair_behind.py": ("[inference", "mse-scaled"),
    "test_pair_constants.py": ("[order]", "[table_trained]", "at_random", "at_one", "users_loads", "no_difference"),
    "test_pair_commands.py": ("a_mistake_in_the_file", "refused", "accept_wants", "flags_make_a_pair"),
    "test_pair_tables.py": ("cls_first", "cls_base", "pretrained]", "reads"),
    "test_pairs.py": ("_pair[mlp", "_pair[attention]", "[mlp-activation=elu", "[convmap]"),
    "test_pairs_choices.py": ("behind the gate", "slice", "unequal", "projections by", "scale", "mistake"),
    "test_pairs_telling.py": ("Glu-pair.keras_kwargs.exchanged=True]", "held=False]", "Scores", "only_order"),
    "test_processes.py": ("rank.raises",),
    "public/test_public.py": ("[dcgan_d", "every_pair", "is_told", "truth_s", "its_id"),
    "test_recorded.py": (),
    "test_repair.py": ("pair_s_file", "two_faults"),
    "test_reproduce.py": (),
    "test_standalone.py": ("wrong_number",),
    "test_variations.py": ("masked", "clamped", "dropping-", "that_a_variation_reaches", "json", "is_told"),
    "torch_impl/test_inputs.py": ("single]", "in_place", "kind"),
    "torch_impl/test_strategies.py": ("[3-simple", "variant", "local", "drift", "shards"),
    "test_strategies.py": ("simple_block/tensor_parallel-1",),
}


# Of what is marked slow each day's run has another part, so that four weeks have all; --whole has all at once.
TURNS = 28
# All workers of a run have one day, also if it ends meanwhile.
DAY = int(os.environ.setdefault("PARITY_TESTS_DAY", str(date.today().toordinal())))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run what is marked slow whole, not the part of the day")


def _is_of_another_day(item: pytest.Item) -> bool:
    is_slow = item.get_closest_marker("slow") is not None
    together = item.nodeid.partition(": ")[0]  # the commands of a page, each of which needs those before it
    return is_slow and zlib.crc32(together.encode()) % TURNS != DAY % TURNS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not in its file's sample, leave out what is another day's, and begin with what takes longest.

    A worker takes a file at a time. Tests that are asked for by name are run on any day.
    """
    for item in items:
        sample = SAMPLES.get(item.path.relative_to(TESTS).as_posix(), ("",))
        if not any(part in item.name for part in sample):
            item.add_marker(pytest.mark.slow)
    if not config.getoption("whole") and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=list(filter(_is_of_another_day, items)))
        items[:] = itertools.filterfalse(_is_of_another_day, items)
    places = {TESTS / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Backend]]:
    """The two processes."""
    folder = tmp_path_factory.mktemp("backends")
    started = [Backend("torch", "", folder), Backend("keras", "", folder)]
    with running(started):
        yield started


@pytest.fixture(scope="session")
def run(backends: list[Backend], tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Run one case on both sides and judge it: `run(name or case, changes, torch="fault", keras="fault")`."""
    numbers = itertools.count()

    def compared(name: str | Case, changes: dict | None = None, **faults: str) -> CaseResult:
        case = name if isinstance(name, Case) else cases.resolve(name, changes or {})
        folder = tmp_path_factory.mktemp(f"case{next(numbers)}")
        jobs = {
            backend: Job(
                case=case,
                runs=RUNS[backend.name],
                folder=str(folder / backend.name),
                fault=faults.get(backend.name, ""),
            )
            for backend in backends
        }
        for answer in both(jobs).values():
            assert answer.status == "done", answer.message
        return explained(Trace(folder / "torch"), Trace(folder / "keras"))

    return compared
