"""The environment variables by which each framework tells a process its rank and its peers."""

import json
import socket
from pathlib import Path


def variables(backend: str, ranks: int, folder: Path) -> list[dict[str, str]]:
    """Return the environment variables of each of `ranks` processes; a single process needs none."""
    if ranks == 1:
        return [{}]
    if backend == "keras":
        return _tensorflow(ranks)
    return _torch(ranks, folder)


def _torch(ranks: int, folder: Path) -> list[dict[str, str]]:
    """Return torchrun's variables, but a file as the rendezvous: it needs no port, and is deleted with the folder."""
    rendezvous = folder / "rendezvous"
    rendezvous.unlink(missing_ok=True)  # an earlier group of ranks may have left it
    common = {"WORLD_SIZE": str(ranks), "PARITY_RENDEZVOUS": rendezvous.absolute().as_uri(), "GLOO_SOCKET_IFNAME": "lo"}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **common} for rank in range(ranks)]


def _tensorflow(ranks: int) -> list[dict[str, str]]:
    """Return TF_CONFIG for tf.distribute.MultiWorkerMirroredStrategy, with ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    workers = [f"127.0.0.1:{listening.getsockname()[1]}" for listening in sockets]
    for listening in sockets:
        listening.close()
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})}
        for rank in range(ranks)
    ]
