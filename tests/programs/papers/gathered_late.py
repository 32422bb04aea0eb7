"""Not a fault: each rank updates its half of the parameters, which the next step gathers before it computes."""

from tests.programs.papers import stale_shards


def build_right():
    return stale_shards.build()


def step_right(model, inputs):
    stale_shards.gather(model)
    stale_shards.backward(model, inputs)
    model.optimizer.step()
