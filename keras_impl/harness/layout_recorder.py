"""The device layout of one training step: what TensorFlow ran meanwhile, and where the state lies."""

from collections import defaultdict
from collections.abc import Iterable

import tensorflow as tf
from tensorflow.python.eager import context  # run metadata of functions have no public door

from keras_impl.harness import devices, partitions, weights
from keras_impl.harness.replicas import Replica
from parity.config import schema
from parity.trace.layout import Layout


class Watch:
    """Watches TensorFlow between `start` and `stop`. `each`: logical devices per replica."""

    def __init__(self, each: int):
        self.each = each
        self.watching = False
        self.evidence = partitions.Evidence({}, {}, [], {})
        self._traced: dict[int, tf.Graph] = {}

    def start(self) -> None:
        context.context().enable_run_metadata()
        # What was executed since the last export is kept, disabled or not.
        context.context().export_run_metadata()
        self.watching = True

    def see(self, tensor: tf.Tensor) -> None:
        """Remember the graph that is being traced: it knows the shapes."""
        self._traced[id(tensor.graph)] = tensor.graph

    def stop(self) -> None:
        """TensorFlow tells of the first execution of a function only, so one step is what there is."""
        ran = context.context().export_run_metadata().function_graphs
        context.context().disable_run_metadata()
        self.watching = False
        # Of all functions, tf.data's among them, the training step is the one that records.
        (step,) = (each.partition_graphs for each in ran if partitions.recorded(each.partition_graphs))
        self.evidence = partitions.Partitions(step, list(self._traced.values())).evidence(self.each)
        self._traced.clear()

    def layout(self, case: schema.Case, replicas: Iterable[Replica]) -> Layout:
        """All that was seen, and the devices of what each replica holds."""
        parameters: dict[str, set[int]] = defaultdict(set)
        slots: dict[str, set[int]] = defaultdict(set)
        for replica in {id(replica.model): replica for replica in replicas}.values():
            found = weights.residents(replica.model, replica.optimizer)
            for mapping, numbers in zip(found, (parameters, slots), strict=True):
                for name, places in mapping.items():
                    numbers[name].update(devices.number(place) for place in places)
        return Layout(
            devices=devices.physical(case.devices),
            parameters={name: sorted(held) for name, held in parameters.items()},
            optimizer_state={name: sorted(held) for name, held in slots.items()},
            **self.evidence._asdict(),
            replicas=case.replicas,
        )
