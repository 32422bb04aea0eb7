"""Names that are used in traces, mappings and reports alike."""

# The name of the whole model as a module, and of the tensor that it returns. The parentheses keep it apart from any
# submodule's name. A model's further outputs are "(model)#1", "(model)#2"..., or "(model).NAME" if outputs have names.
MODEL = "(model)"

# The gradient of an input is "(input).NAME".
INPUT = "(input)"

# In the note on a float32 computation (`lifted`): its values were rounded before they came back to float64.
STAY_ROUNDED = "of values that stay rounded to"
