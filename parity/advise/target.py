"""From the flags to the devices that are asked about, and what is assumed of them."""

import argparse
import shutil
import subprocess
from collections.abc import Iterator

from parity import cli
from parity.advise import devices
from parity.advise.advice import FACTOR, USABLE, Adviser, Target, peak
from parity.advise.devices import GIGA, TERA, Device, Group, Table
from parity.advise.measure import Here, Rates, measured_link, processors, rates
from parity.core.errors import UsageError
from parity.runtime import resources
from parity.runtime.hardware import available, gpus

OWN_LINKS = ("memory", "memory")  # until that between processes is measured
GPU_LINK = "pcie"


def target(args: argparse.Namespace, group: Group, table: Table) -> Target:
    """Return the devices that the flags ask about. Raises UsageError for what this machine does not have."""
    pythons = cli.pythons(args)
    row = None if group.is_here else devices.found(table.device, group.kind, f"--devices={args.devices}: device")
    if group.kind == "gpu" and gpus(pythons) < group.number:
        raise UsageError(
            f"--devices={group}: this machine has {gpus(pythons)} GPUs that {' and '.join(pythons)} can use; for "
            "devices that are not here give their name, e.g. --devices=8xH200"
        )
    usual = [row.link] if row else list(OWN_LINKS if group.kind == "cpu" else [GPU_LINK])
    names = ([args.link] if args.link else usual) * 2
    links = [devices.found(table.link, name, f"--link={name}: link") for name in names]
    if group.kind == "cpu" and group.number > 1 and not args.link:
        links[0] = measured_link(group.number, Here(pythons, "cpu", args.seconds, args.timeout))
    memory = devices.gigabytes(args.memory) if args.memory else row.memory * GIGA if row else _memory(group)
    measured = _rates(table, pythons) if row else None
    return Target(group=group, links=tuple(links), memory=memory, rates=measured, row=row)


def _memory(group: Group) -> float:
    """Return the memory of one device of this machine; that of a CPU is shared by all of them."""
    return float(resources.memory()) if group.kind == "cpu" else float(_nvidia("memory.total")) * 2**20


def _rates(table: Table, pythons: dict[str, str]) -> Rates:
    """Return the rates of the device on which steps are measured: those of the table for a known GPU."""
    if available(pythons).kind == "cpu":
        return rates()
    name = _nvidia("name")
    known: list[Device] = [row for kind, row in table.device.items() if kind in name.split()]
    if not known:
        raise UsageError(f"this machine's {name} is not in the table of devices; add it with --table=FILE.toml")
    return Rates(known[0].float32 * TERA, known[0].bandwidth * GIGA)


def _nvidia(field: str) -> str:
    command = [shutil.which("nvidia-smi") or "nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def assumptions(adviser: Adviser, aim: Target) -> Iterator[str]:
    """Yield what the prediction rests on, one line each."""
    yield f"{USABLE:.0%} of a device's memory can be used for tensors"
    link = aim.links[0]
    yield f"links between devices: {link.bandwidth:.3g} GB/s, {link.latency:.3g} µs ({link.source})"
    if aim.shares:
        yield f"a process has one of {processors()} processors: the devices of one process compute one after the other"
    if aim.row:
        yield (
            f"{aim.group.kind}: {peak(adviser.case, aim.row):g} TFLOPS, {aim.row.bandwidth:g} GB/s ({aim.row.source}); "
            "it reaches the part of that which this machine's device reaches of its own"
        )
        yield "what the host does for each pass takes as long there as here"
    if adviser.case.precision != "float32":
        yield f"at {adviser.case.precision}, activations have the bytes of float32: an upper bound"
    if adviser.here.pair:
        yield "a pair's blocks are the members of its numbered lists of modules; its operations run at half the peak"
    yield f"what would change the choice was tried by a factor of {FACTOR:.0f} each"
