"""The strategies in TensorFlow and Keras as a user writes them, with nothing of keras_impl/strategies.

Each function in STRATEGIES gets a function that builds the model and gives it its weights, one that makes the
optimizer, the loss and the devices. It returns the variables that are trained, and the function that makes one step.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_impl import losses, models, optimizers
from keras_impl.models.block import as_tuple, stages
from keras_impl.record import data, weights
from parity.runtime.drive import Program, Run


class Trained(NamedTuple):
    """What is trained, in the place of a model."""

    trainable_variables: list[keras.Variable]


def program(run: Run, names: list[str]) -> Program:
    """Return the run's case as a program, trained by the loop of its strategy in this file."""

    def make(prepare: Callable[[keras.Model], None] = lambda model: None) -> keras.Model:
        model = models.build(run.case.model)
        prepare(model)
        model.build(data.input_shape(run))
        weights.load(model, run.weights)
        return model

    make_optimizer = functools.partial(optimizers.build, run.case)
    variables, step = STRATEGIES[run.case.strategy](make, make_optimizer, losses.build(run.case.loss), names)

    def train(batches: Iterator[Any], on_step: Callable[[], None]) -> None:
        for batch in batches:
            step(batch)
            on_step()

    return Program(Trained(variables), data.steps(run), train)


def parameters(model: Any) -> list[np.ndarray]:
    """Return the values of what is trained."""
    return [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]


def single(make, make_optimizer, loss, devices):
    with tf.device(devices[0]):
        model, optimizer = make(), make_optimizer()
        optimizer.build(model.trainable_variables)
    return model.trainable_variables, _accumulating(model, model.trainable_variables, optimizer, loss)


def hybrid(make, make_optimizer, loss, devices):
    rows = [devices[start : start + 2] for start in range(0, len(devices), 2)]
    replicas = [_stages(make, row) for row in rows]
    optimizers_ = [make_optimizer() for _ in rows]
    variables = [[v for stage, _ in replica for v in stage.variables] for replica in replicas]
    for optimizer, own in zip(optimizers_, variables, strict=True):
        optimizer.build(own)

    @tf.function
    def step(parts):
        gradients = [_pass(replica, loss, part, True) for replica, part in zip(replicas, parts, strict=True)]
        sums = [tf.add_n(of_variable) for of_variable in zip(*gradients, strict=True)]
        for optimizer, own in zip(optimizers_, variables, strict=True):
            optimizer.apply(sums, own)

    return variables[0], step


def branch_parallel(make, make_optimizer, loss, devices):
    def place(model):
        for attention in _attentions(model):
            for i, layer in enumerate((attention.query, attention.key, attention.value)):
                device = devices[i % len(devices)]
                layer.build, layer.call = _under(device, layer.build), _under(device, layer.call)

    with tf.device(devices[0]):
        model, optimizer = make(place), make_optimizer()
        optimizer.build(model.trainable_variables)
    return model.trainable_variables, _accumulating(model, model.trainable_variables, optimizer, loss)


def tensor_parallel(make, make_optimizer, loss, devices):
    with tf.device(devices[0]):
        model, optimizer = make(), make_optimizer()
        layers = (*model.transformer.encoder.blocks, *model.transformer.decoder.blocks)
        whole = {id(v) for layer in layers for one in (layer.linear1, layer.linear2) for v in one.trainable_variables}
        variables = [v for v in model.trainable_variables if id(v) not in whole]
        for layer in layers:
            variables += _split(layer, devices)
        optimizer.build(variables)
    return variables, _accumulating(model, variables, optimizer, loss)


def _gradients(model, variables, loss, micro_batches):
    total = None
    for inputs, target, share in micro_batches:
        with tf.GradientTape() as tape:
            outputs = model(inputs if len(inputs) > 1 else inputs[0], training=True)
            value = loss(outputs, target) * share
        new = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, variables)]
        total = new if total is None else [a + b for a, b in zip(total, new, strict=True)]
    return total


def _accumulating(model, variables, optimizer, loss):
    """Return the plain training step, which adds up the gradients of its micro-batches."""

    @tf.function
    def step(micro_batches):
        optimizer.apply(_gradients(model, variables, loss, micro_batches), variables)

    return step


def _mirrored(make, make_optimizer, loss, devices, reduce=False):
    """Train under MirroredStrategy; with `reduce` the program sums the gradients."""
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        model, optimizer = make(), make_optimizer()
        optimizer.build(model.trainable_variables)
    optimizer.gradients_are_reduced = reduce

    def replica_step(micro_batches):
        gradients = _gradients(model, model.trainable_variables, loss, micro_batches)
        if reduce:
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        optimizer.apply(gradients, model.trainable_variables)

    @tf.function
    def train_step(parts):
        strategy.run(replica_step, args=(parts,))

    def step(parts):
        train_step(
            strategy.experimental_distribute_values_from_function(lambda ctx: parts[ctx.replica_id_in_sync_group])
        )

    return model.trainable_variables, step


def _staged(make, make_optimizer, loss, devices, per_block=False, together=False):
    """Train a chain of stages: one per device, or per block on the devices in turn."""
    chain, optimizer = _stages(make, devices, per_block), make_optimizer()
    variables = [variable for stage, _ in chain for variable in stage.variables]
    optimizer.build(variables)

    @tf.function
    def step(micro_batches):
        optimizer.apply(_pass(chain, loss, micro_batches, together), variables)

    return variables, step


def _stages(make, devices, per_block=False):
    """Return the stages of a new model, each with its device, where its variables are."""
    chain = []

    def place(model):
        blocks = model.blocks()
        count = len(blocks) if per_block else len(devices)
        for i, stage in enumerate(stages(blocks, count)):
            device = devices[i % len(devices)]
            chain.append((stage, device))
            for layer in stage.parts:
                layer.build = _under(device, layer.build)

    make(place)
    return chain


def _pass(chain, loss, micro_batches, together):
    """Return the summed gradients of all stages' variables; `together`: all forward passes before all backward ones."""
    if together:
        forwards = [_forward(chain, loss, micro_batch) for micro_batch in micro_batches]
        gradients = [_backward(chain, *forward) for forward in forwards]
    else:
        gradients = [_backward(chain, *_forward(chain, loss, micro_batch)) for micro_batch in micro_batches]
    total = gradients[0]
    for new in gradients[1:]:
        total = [a + b for a, b in zip(total, new, strict=True)]
    return total


def _forward(chain, loss, micro_batch):
    tensors, target, share = micro_batch
    passed = []
    for number, (stage, device) in enumerate(chain):
        with tf.device(device), tf.GradientTape() as tape:
            tensors = [tf.identity(tensor) for tensor in tensors]
            if number:
                tape.watch(tensors)
            outputs = as_tuple(stage.call(*tensors, training=True))
            if number + 1 == len(chain):
                outputs = (loss(outputs[0], target) * share,)
        passed.append((tape, tensors, outputs))
        tensors = outputs
    return (passed,)


def _backward(chain, passed):
    upstream, gradients = None, []
    for number in reversed(range(len(chain))):
        (stage, device), (tape, inputs, outputs) = chain[number], passed[number]
        with tf.device(device):
            own, upstream = tape.gradient(outputs, (stage.variables, inputs if number else []), upstream)
            gradients = [tf.convert_to_tensor(gradient) for gradient in own] + gradients
    return gradients


def _attentions(model):
    for layer in model.transformer.encoder.blocks:
        yield layer.self_attn
    for layer in model.transformer.decoder.blocks:
        yield from (layer.self_attn, layer.multihead_attn)


def _split(layer, devices):
    """Give the devices a part of the two layers each, and return the parts' variables."""
    (kernel1, bias1), (kernel2, bias2) = layer.linear1.get_weights(), layer.linear2.get_weights()
    ends = np.array_split(range(len(bias1)), len(devices))
    parts = []
    for number, (device, own) in enumerate(zip(devices, ends, strict=True)):
        with tf.device(device):
            first, second = keras.layers.Dense(len(own)), keras.layers.Dense(len(bias2), use_bias=number == 0)
            first.build((None, len(kernel1)))
            second.build((None, len(own)))
            first.set_weights([kernel1[:, own], bias1[own]])
            second.set_weights([kernel2[own], bias2] if number == 0 else [kernel2[own]])
        parts.append((device, first, second))

    def feed_forward(x, training):
        outputs = []
        for device, first, second in parts:
            with tf.device(device):
                outputs.append(second(tf.nn.relu(first(x))))
        return tf.add_n(outputs)

    layer.feed_forward = feed_forward
    return [v for _, first, second in parts for one in (first, second) for v in one.trainable_variables]


def _under(device, function):
    def called(*args, **kwargs):
        with tf.device(device):
            return function(*args, **kwargs)

    return called


STRATEGIES = {
    "single": single,
    "round_robin": functools.partial(_staged, per_block=True),
    "data_parallel": _mirrored,
    "ddp": _mirrored,
    "all_reduce": functools.partial(_mirrored, reduce=True),
    "send_recv": _staged,
    "pipeline": functools.partial(_staged, together=True),
    "hybrid": hybrid,
    "branch_parallel": branch_parallel,
    "tensor_parallel": tensor_parallel,
}
