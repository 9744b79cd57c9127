"""The exceptions. The library raises them; `runner/cli` and `pages/states.py` show them.

    StepscopeError                exit code 2 unless stated
    ├── UsageError                a value, name or combination that cannot be asked for
    ├── StoreError                the file
    │   ├── DatabaseMissing       there is none yet
    │   ├── DatabaseBusy          another program holds it open for writing
    │   ├── DatabaseForeign       it is not DuckDB's, or not Stepscope's, or from a newer Stepscope
    │   ├── DatabaseDamaged       some of its tables can no longer be read
    │   └── RowsRefused           it holds what its columns may not hold
    │       └── RowsDiffer        it holds rows that are there with other values; exit code 1
    └── Skipped                   a cell that this machine cannot measure; becomes a row, never a failure

Every message says what was got, what was expected and what to do, in this order.
"""

#: The message and the exit code of an interrupted command.
INTERRUPTED = "Interrupted. Finished cells are kept; the same command goes on where it stopped."
INTERRUPTED_CODE = 130


class StepscopeError(Exception):
    """An error with an explanation. `str(error)` is the whole message for the person who sees it."""

    exit_code = 2

    def __init__(self, got: str, *, expected: str = "", do: str = "") -> None:
        self.got, self.expected, self.do = got, expected, do
        expectation = f" Expected {expected}." if expected else ""
        advice = f" {do}" if do else ""
        super().__init__(f"{got}{expectation}{advice}")


class UsageError(StepscopeError):
    """A value, name or combination that cannot be asked for."""


#: What a command that measures says where torch, or what else it needs for that, is not installed.
NO_TORCH = {"got": "This needs torch, which is not installed with all that measuring takes.",
            "do": "pip install 'stepscope[runner]'"}  # fmt: skip


class BadModel(UsageError):
    """A user's own model that cannot be built or measured."""


class StoreError(StepscopeError):
    """The results file cannot be used as it is."""


class DatabaseMissing(StoreError):
    """There is no results file yet."""


class DatabaseBusy(StoreError):
    """Another program holds the results file open for writing."""


class DatabaseForeign(StoreError):
    """The file is not a DuckDB database, not a Stepscope file, or was made by a newer Stepscope."""


class DatabaseDamaged(StoreError):
    """Tables of the file cannot be read, such as after an error of the disk; `tables` are their names."""

    def __init__(self, got: str, *, expected: str = "", do: str = "", tables: tuple[str, ...] = ()) -> None:
        super().__init__(got, expected=expected, do=do)
        self.tables = tables


class RowsRefused(StoreError):
    """Rows hold what the schema does not allow; none of them was added."""


class RowsDiffer(RowsRefused):
    """Rows have the ids of rows that are there, and other values; none of them was added."""

    exit_code = 1


class Skipped(StepscopeError):
    """This machine cannot measure the cell; the message is the reason and becomes the row's."""
