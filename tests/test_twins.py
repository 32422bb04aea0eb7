"""torch_impl and keras_impl are twins: the same files, the same public names, the same signatures.

What stands on one side alone is in ONE_SIDED (files) or EXCEPTIONS (names in a file) with its reason; one that is no
longer needed fails. The folder instruments/ holds what cannot be twins: hooks and dispatch modes in torch_impl, op
callbacks and graph partitions in keras_impl. Of its files only what the rest of a package calls on both sides is
compared (CALLED).
"""

import ast
import functools
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

EXCEPTIONS = {
    "optimizers.py": {
        "SGD": "torch.optim has it; Keras's own is another formula",
        "Adam": "torch.optim has it; Keras's own is another formula",
        "AdamW": "torch.optim has it; Keras's own is another formula",
        "StepLR": "torch.optim.lr_scheduler has it; Keras's own rounds through float32",
        "PyTorchClipping": "a Keras optimizer clips by itself, by another formula",
        "build": "a torch optimizer is made of its parameters",
        "clip_by_global_norm": "torch clips gradients in place, reached through their parameters",
        "on_device_of_variable": "torch computes where its tensors are",
    },
    "dropout.py": {"number": "a DTensor knows its part of the whole; Keras's axes stand in another order"},
    "models/residual_block.py": {"BatchNorm2d": "torch.nn has it; Keras's own keeps the biased variance"},
    "models/transformer.py": {
        "Transformer.forward": "a Keras model takes one structure of inputs",
        "EncoderDecoder": "torch.nn.Transformer",
        "Encoder": "torch.nn.TransformerEncoder",
        "Decoder": "torch.nn.TransformerDecoder",
        "EncoderLayer": "torch.nn.TransformerEncoderLayer",
        "DecoderLayer": "torch.nn.TransformerDecoderLayer",
        "MultiheadAttention": "torch.nn.MultiheadAttention",
    },
    "models/block.py": {
        "Stage.place": "a torch module is moved",
        "Stage.variables": "torch.nn.Module.parameters",
    },
    "strategies/single.py": {"fit": "PyTorch has no fit; its side of such a case is train"},
    "strategies/data_parallel.py": {
        "fit": "PyTorch has no fit; its side of such a case is train",
        "place": "nn.DataParallel is told the axis of the samples; Keras models are batch-first",
    },
    "strategies/ddp.py": {"place": "the workers of TensorFlow are another strategy; DDP always has processes"},
    "strategies/pipeline.py": {"place": "PipelineStage is told shapes and the axis of the samples, and a mesh's group"},
    "strategies/send_recv.py": {"evaluate": "a stage of a mesh passes on within its group"},
    "strategies/hybrid.py": {
        "place": "PipelineStage is told shapes and the axis of the samples",
    },
    "experiment/call.py": {"copied": "TensorFlow's tensors never change"},
    "experiment/live.py": {
        "Live.graph_settings": "the code of a functional Keras model runs when it is built; torch's runs in each call",
    },
    "experiment/operations.py": {
        "graph_settings": "the code of a functional Keras model runs when it is built; a torch module's in each call",
        "located": "the code of a functional Keras model runs when it is built; a torch module's in each call",
    },
    "experiment/training.py": {
        "Training.numbers": "a Keras step is run again, and its code read; of torch's only functions are called again",
    },
    "record/pair/build.py": {
        "is_overridden": "a torch module has no methods that train or predict",
        "ready": "a torch model is moved, cast and promoted after it is built",
        "fitted": "fit gives a Keras model its inputs as one structure",
        "Given": "a Keras model takes its inputs as one structure, or by other names",
        "tensor": "Keras's inputs may have another axis order",
        "tensors": "Keras's inputs may have another axis order",
    },
    "record/pair/held.py": {
        "dense_gradients": "Keras's run holds what torch has",
        "epsilons": "torch's Adam holds what Keras has, and Keras's Adagrad what torch has",
        "norms": "torch's run holds what Keras has",
        "running_variances": "torch's run holds what Keras has",
    },
    "record/pair/losses.py": {
        "made": "Keras's loss goes into compile",
        "FirstOutput": "Keras's loss goes into compile",
        "target": "fit is given a target before the model is called",
        "layout": "Keras's outputs may have another axis order",
        "trained": "a target is drawn for torch's output",
        "training": "torch's loss is a line of the plain loop",
        "Scalar": "torch's loss is a line of the plain loop",
    },
    "record/pair/optimizers.py": {
        "made": "a Keras optimizer that accumulates gradients is told so before it is built",
        "unwrapped": "torch's GradScaler is no optimizer",
        "gradients_of": "a torch parameter holds its gradient; Keras's are what a tape returns",
        "leaves": "a torch tensor knows what it was computed from; of TensorFlow's a tape does",
        "Joint": "torch's optimizers hold their slots by parameter, Keras's by number",
        "Before": "the reference alone tells in which order a step's optimizers update",
        "StepObserver": "torch's hooks see what an optimizer applies; Keras's optimizers and tapes are wrapped",
    },
    "record/pair/outputs.py": {
        "unnamed": "Keras's half is told how torch's orders its outputs",
        "ordered": "Keras's half is told how torch's orders its outputs",
        "Output": "Keras's outputs may have another axis order",
        "laid_out": "Keras's outputs may have another axis order",
    },
    "record/pair/rehearsal.py": {"still": "both sides start from torch's values, in which no zeros are left"},
    "record/pair/run.py": {
        "fast_paths": "torch fuses the layers of an encoder in inference; Keras does not",
        "without_fast_paths": "torch fuses the layers of an encoder in inference; Keras does not",
    },
    "record/pair/training.py": {
        "Training": "a Keras model has a train_step of its own; torch's is a plain loop",
    },
    "record/pair/script.py": {
        "Script.numbers": "a Keras step is run again, and its code read; of torch's only functions are called again",
        "Script.fetched": "PyTorch's script gives the batches, and tells then how it takes them",
        "Script.optimizer": "a torch optimizer is made of its parameters",
    },
    "record/pair/sides.py": {
        "Setup": "torch wraps the model, and ranks exchange numbers; Keras traces functions and tells the optimizer",
    },
    "record/pair/sources.py": {
        "Sources.layers": "a torch module that is not called is part of the model all the same",
        "noted_at_creation": "torch keeps modules in the order of their definition, and runs their code in each call",
    },
    "record/pair/values.py": {
        "constants": "both sides start from torch's own values",
        "load": "torch's names are the canonical ones",
        "Weights": "Keras's variables are converted by the mapping of the weights",
        "Placed": "Keras's variables are converted by the mapping of the weights",
        "shape": "torch's shapes are the canonical ones",
    },
    "record/pair/vary.py": {
        "Instance.__init__": "Keras's inputs and outputs are converted by torch's survey",
        "Instance.reload_written": "a torch.nn.Embedding with max_norm writes to its weights; no Keras layer does",
        "observed": "a torch mode is told the module by hooks; Keras's layers are wrapped by the caller",
        "embeddings": "a torch mode sees the function behind an embedding; Keras's is seen as a layer",
    },
    "record/run.py": {"options": "a torch strategy is shown data by some options"},
    "record/data.py": {
        "Samples": "a rank reads for itself; one program reads for every replica",
        "tensors": "one program puts each replica's tensors on its device",
        "example": "PipelineStage is told shapes by an example",
        "input_shape": "a Keras model makes its variables when it is built",
    },
    "record/calls.py": {
        "entered": "a torch module has a path in the model that asks; Keras's wrapper knows the path",
        "innermost": "a torch module has a path in the model that asks; Keras's wrapper knows the path",
        "is_backward": "torch.utils.checkpoint calls modules in the backward pass",
        "tracked": "torch has hooks for the calls of all modules; Keras's layers are wrapped one by one",
        "untracked": "torch has hooks for the calls of all modules; Keras's layers are wrapped one by one",
    },
    "record/masks.py": {
        "Masks": "torch's functions are replaced while it trains; Keras's layers drop in a graph that is traced once",
        "Dropping": "a torch mask is drawn for the module that is being called",
        "OrderedMasks": "torch's Masks can go by order; Keras's own are drawn in a graph that is traced once",
    },
    "record/precision.py": {
        "eagerly": "torch runs op by op",
        "cast": "torch.autocast wraps calls; Keras's policy is a property of the layers",
        "autocast": "torch.autocast wraps calls; Keras's policy is a property of the layers",
        "promote_graph": "torch.compile runs its graphs where no mode is active; Keras's are traced in promoted code",
        "promote_weights": "torch's modules may hold float32; Keras's variables are promoted as they are made",
    },
    "record/probe.py": {
        "Probe.__init__": "a torch process has one model; one Keras program has one for each replica",
        "Probe.begin_forward": "a torch step's passes share one record of what was seen",
        "Probe.forward": "a torch step of the user's own is recorded within a block",
        "Probe.gradients": "a torch parameter holds its gradient; Keras's arrive all at once",
        "Probe.reduction": "torch's hooks see the gradients of a rank; a Keras strategy hands them to its reduction",
    },
    "record/recorders.py": {
        "LayoutRecorder": "a dispatch mode sees ops as they run; TensorFlow tells of a step when it is over",
        "Replicas": "a torch tensor is there when it is seen; Keras's come when a traced graph is executed",
    },
    "record/specimen.py": {
        "Conv2d": "torch.nn has it; Keras's own pads otherwise",
        "MaxPool2d": "torch.nn has it; Keras's own pads otherwise",
        "Flatten": "torch.nn has it; Keras's own counts the channels last",
        "GELU": "torch.nn has it; Keras's own rounds a constant through float32",
    },
    "record/tree.py": {
        "nodes": "torch names a module by its attributes; a Keras layer may have a name of its own besides",
        "paths": "a torch module has a path in the model that asks; Keras's wrapper knows the path",
        "attributes": "PyTorch itself names modules by the attributes that hold them",
        "held_by": "PyTorch itself lists what a module holds",
        "joined": "PyTorch itself joins the names of a path",
        "role_of": "PyTorch itself names parameters and buffers by the attributes that hold them",
        "computed": "a layer of Keras's may have its activation within it",
        "passed": "torch's arguments need no signature; Keras's are bound by the wrapper of the call",
    },
    "record/weights.py": {
        "Rule": "canonical form is PyTorch's own",
        "Weight": "canonical form is PyTorch's own",
        "Value": "what replicas have in common is not converted again",
        "same_bits": "what replicas have in common is not converted again",
        "Weights": "a torch process may hold a part of the model; a Keras variable has a copy for each replica",
        "statistics": "Keras's are listed by its rules, or by the survey",
        "trained": "a torch process may hold a part of the model",
    },
}
# Files that only one side has, outside of instruments/.
ONE_SIDED = {
    "record/canonical.py": "torch's names and axes are the canonical ones",
    "record/pair/fitted.py": "fit traces a training step; a torch step runs op by op",
    "record/pair/first_call.py": "Keras's layers may make their weights in the first call",
    "record/pair/layers.py": "PyTorch itself names parameters and buffers; its names and axes are the canonical ones",
    "strategies/fsdp.py": "Keras on TensorFlow has nothing that shards parameters over devices and trains",
}
# What every strategy offers; its other parts are its framework's own means.
INTERFACE = ("place", "train", "evaluate", "fit", "batches")
INSTRUMENTS = "instruments/"
# What they may import of their package: each other, and the stack of calls, which records nothing.
BELOW = ("instruments", "record.calls")
# What the rest of a package calls of its instruments, on both sides.
CALLED = {
    "Building",
    "Building.__init__",
    "Building.modules",
    "Building.weights",
    "Building.moves",
    "Calls",
    "Calls.__init__",
    "Calls.watched",
    "nearest",
    "rank",
    "tensors",
}

# The same thing under each framework's customary name.
SYNONYMS = {"call": "forward"}
# Methods that Keras asks of models and layers, and PyTorch does not.
KERAS_ONLY = {"get_config", "build"}
# In PyTorch training is a state of the module, and parameters are made with it.
KERAS_ONLY_ARGUMENTS = {"training=False", "input_shape"}


def files(package: Path) -> set[str]:
    return {str(path.relative_to(package)) for path in package.rglob("*.py")}


def signature(function: ast.FunctionDef) -> tuple:
    """The names of the arguments, and those with a default as `name=default`."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    plain = names[: len(names) - len(arguments.defaults)]
    pairs = zip(names[len(plain) :], arguments.defaults, strict=True)
    words = plain + [f"{name}={ast.unparse(default)}" for name, default in pairs]
    return tuple(word for word in words if word not in KERAS_ONLY_ARGUMENTS)


@functools.cache
def statements(text: str) -> list[ast.stmt]:
    """The statements of a source file; of most files each test reads the same text."""
    return ast.parse(text).body


def public(path: Path) -> dict[str, tuple]:
    """Public functions, classes and methods of a file with their signatures."""
    found = {}
    for node in statements(path.read_text()):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = signature(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found[node.name] = ()
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and is_public(method.name):
                    found[f"{node.name}.{SYNONYMS.get(method.name, method.name)}"] = signature(method)
    return found


def is_public(method: str) -> bool:
    return method == "__init__" or not (method.startswith("_") or method in KERAS_ONLY)


def strategy(path: Path) -> dict[str, tuple]:
    """The interface of a strategy, as it is defined in its file or in the one that it is imported from."""
    found = {name: arguments for name, arguments in public(path).items() if name in INTERFACE}
    for node in statements(path.read_text()):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[2].startswith("strategies."):
            source = path.with_name(f"{node.module.rpartition('.')[2]}.py")
            named = {alias.name for alias in node.names} & set(INTERFACE)
            found |= {name: strategy(source)[name] for name in named}
    return found


def shared(path: Path, name: str) -> dict[str, tuple]:
    """What the twins have in common of a file, which is called `name` in both packages."""
    if name.startswith("strategies/"):
        return strategy(path)
    is_instrument = name.startswith(INSTRUMENTS)
    return {entity: words for entity, words in public(path).items() if not is_instrument or entity in CALLED}


def differences(root: Path) -> tuple[list[str], set[tuple[str, str]]]:
    """What differs without an exception, and the exceptions that were needed."""
    torch, keras = root / "torch_impl", root / "keras_impl"
    one_sided = {name for name in files(torch) ^ files(keras) if not name.startswith(INSTRUMENTS)}
    used = {(name, "") for name in one_sided & ONE_SIDED.keys()}
    wrong = [f"{name}: only on one side" for name in one_sided - ONE_SIDED.keys()]
    for name in files(torch) & files(keras):
        one, other = shared(torch / name, name), shared(keras / name, name)
        for entity in one.keys() | other.keys():
            if one.get(entity) == other.get(entity):
                continue
            excepted = {entity, entity.partition(".")[0]} & EXCEPTIONS.get(name, {}).keys()
            used |= {(name, which) for which in excepted}
            if not excepted:
                wrong.append(f"{name}: {entity}: torch {one.get(entity)}, keras {other.get(entity)}")
    return wrong, used


def test_the_twins_agree():
    assert differences(ROOT)[0] == []


def test_every_exception_is_needed():
    names = {(file, entity) for file, entities in EXCEPTIONS.items() for entity in entities}
    assert names | {(file, "") for file in ONE_SIDED} == differences(ROOT)[1]


def imports_of_others(package: Path) -> list[str]:
    """The imports by which a package's instruments would depend on what uses them."""
    imports = [
        (path.name, f"{node.module}.{alias.name}")
        for path in (package / INSTRUMENTS).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == package.name
        for alias in node.names
    ]
    allowed = tuple(f"{package.name}.{below}" for below in BELOW)
    return [f"{file}: {module}" for file, module in imports if not module.startswith(allowed)]


@pytest.mark.parametrize("package", ["torch_impl", "keras_impl"])
def test_instruments_import_nothing_of_what_uses_them(package, tmp_path):
    assert imports_of_others(ROOT / package) == []
    copy(tmp_path)
    planted = tmp_path / package / INSTRUMENTS / "source.py"
    planted.write_text(f"{planted.read_text()}\nfrom {package}.record import run\n")
    assert imports_of_others(tmp_path / package) == [f"source.py: {package}.record.run"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("keras_impl/losses.py", "def mse(", "def mean_squared_error("),
        (
            "keras_impl/losses.py",
            'target: tf.Tensor, reduction: str = "mean"',
            'target: tf.Tensor, reduction: str = "sum"',
        ),
        ("torch_impl/models/perceptrons.py", "def stage1(self, x", "def stage1(self, inputs"),
        ("keras_impl/strategies/round_robin.py", "evaluate, train", "train"),
        ("torch_impl/strategies/all_reduce.py", "def batches(samples", "def batches(dataset"),
        ("keras_impl/doctor/observer.py", "def step(self, inputs", "def step(self, batch"),
        ("keras_impl/record/pair/build.py", "def build(pair: Pair, at: str", "def build(pair: Pair, precision: str"),
        ("torch_impl/record/pair/losses.py", "def probe(outputs", "def weighed(outputs"),
        ("torch_impl/record/pair/outputs.py", "def flat(value", "def flattened(value"),
        ("keras_impl/instruments/build.py", "def modules(self, model", "def layers(self, model"),
        ("torch_impl/instruments/devices.py", "def rank()", "def rank(case)"),
        ("keras_impl/faults/model.py", "def unused(*variables", "def left_out(*variables"),
    ],
)
def test_a_planted_difference_is_seen(tmp_path, file, old, new):
    copy(tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    assert differences(tmp_path)[0]


@pytest.mark.parametrize("name", ["losses.py", "doctor/observer.py", "faults/model.py", "record/pair/vary.py"])
def test_a_missing_twin_is_seen(tmp_path, name):
    copy(tmp_path)
    (tmp_path / "keras_impl" / name).unlink()
    assert differences(tmp_path)[0] == [f"{name}: only on one side"]


def test_an_instrument_needs_no_twin(tmp_path):
    copy(tmp_path)
    (tmp_path / "keras_impl" / INSTRUMENTS / "one_more.py").write_text("def one_more(): ...\n")
    assert differences(tmp_path)[0] == []


def copy(target: Path) -> None:
    for package in ("torch_impl", "keras_impl"):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
