"""All rows of the soundness table."""

import differs_training
import differs_values
import same_training
import same_values

ROWS = [*differs_values.ROWS, *differs_training.ROWS, *same_values.ROWS, *same_training.ROWS]
