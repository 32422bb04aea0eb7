"""What the user's PyTorch script trains on: the inputs of its model and of its loss in the first steps."""

from pathlib import Path

import numpy as np
import torch

from parity.core import program
from parity.pairs.script_records import Trained, write
from parity.runtime.job import BatchesJob
from torch_impl.record.pair.build import user_errors
from torch_impl.record.pair.script import Script


def batches(job: BatchesJob) -> None:
    """Run the script for the case's steps, and write its batches into the job's folder.

    Raises UsageError if it does not train as a pair is trained, and BackendError for what it raises itself.
    """
    text, arrays = job.case.model.torch, dict[str, np.ndarray]()
    program.begin_anew(job.case.seed)
    torch.manual_seed(job.case.seed)
    script = program.find("torch", text, job.pair.search)
    run = script.__self__
    assert isinstance(run, Script)
    with user_errors(f"torch={text} fails"):
        for number, given in enumerate(run.batches(job.case.steps)):
            arrays |= {f"{name}@{number}": each.detach().cpu().numpy() for name, each in given.items()}
    run.close()
    arrays |= {key: each.cpu().numpy() for key, each in run.fetches.arrays()}
    trained = Trained(
        inputs=[],
        asked=job.case.steps,
        in_evaluation=run.in_evaluation,
        outputs=run.outputs,
        fetched=run.fetches.described(),
        early=run.early(),
        is_distributed=run.is_distributed,
        has_copies=bool(run.copies),
    )
    write(Path(job.folder), trained, arrays)
