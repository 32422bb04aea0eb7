"""Names that all rooms share."""

# The whole model, as a module and as the tensor that it returns; no attribute can have this name. Further tensors are
# "(model)#1", "(model)#2"..., or "(model).NAME" where outputs have names.
MODEL = "(model)"

# The gradient of an input is "(input).NAME".
INPUT = "(input)"
