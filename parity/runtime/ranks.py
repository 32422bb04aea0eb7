"""What a rank is told of itself and the others, in each framework's own variables."""

import json
import socket
from pathlib import Path


def variables(backend: str, ranks: int, folder: Path) -> list[dict[str, str]]:
    """The environment of each of `ranks` processes; a single one is told nothing."""
    if ranks == 1:
        return [{}]
    if backend == "keras":
        return _tensorflow(ranks)
    return _torch(ranks, folder)


def _torch(ranks: int, folder: Path) -> list[dict[str, str]]:
    """As torchrun does, but that they meet in a file: it needs no port, and goes with the folder."""
    meeting = folder / "rendezvous"
    meeting.unlink(missing_ok=True)  # of ranks that are gone
    common = {"WORLD_SIZE": str(ranks), "PARITY_RENDEZVOUS": meeting.absolute().as_uri(), "GLOO_SOCKET_IFNAME": "lo"}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **common} for rank in range(ranks)]


def _tensorflow(ranks: int) -> list[dict[str, str]]:
    """TF_CONFIG, tf.distribute.MultiWorkerMirroredStrategy's."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    workers = [f"127.0.0.1:{listening.getsockname()[1]}" for listening in sockets]
    for listening in sockets:
        listening.close()
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})}
        for rank in range(ranks)
    ]
