"""The tests, which mirror the house."""

import os

# pytest-xdist tells its workers that they are 80 characters wide; the commands print for a pipe, as without it.
os.environ.pop("COLUMNS", None)
