"""All rows of the soundness table, by themes."""

import differs_training
import differs_values
import same_training
import same_values
from rows import Row

TABLES = (differs_values, differs_training, same_values, same_training)
THEMES: dict[str, list[Row]] = {theme: rows for table in TABLES for theme, rows in table.THEMES.items()}
ROWS = [row for rows in THEMES.values() for row in rows]
