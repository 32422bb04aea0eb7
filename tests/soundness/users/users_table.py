"""All rows of the users' table, by themes."""

from users_calls import CALLS
from users_fit import FIT
from users_losses import LOSSES
from users_masks import MASKS
from users_rows import Row
from users_seeds import SEEDS
from users_state import STATE
from users_tables import TABLES
from users_updates import UPDATES

ROWS: list[Row] = [*FIT, *LOSSES, *UPDATES, *CALLS, *STATE, *SEEDS, *TABLES, *MASKS]
