"""The group of all commands: each error becomes one message on stderr and an exit code.

app = typer.Typer(cls=Commands)
"""

import os
import shlex
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from runner.cli.terminal import Terminal
from runner.errors import INTERRUPTED, INTERRUPTED_CODE, StepscopeError, UsageError
from runner.places import explain_error

errors = Terminal(stderr=True)
#: The commands that go on where they stopped.
GO_ON = ("sweep", "frontier")


class Commands(TyperGroup):
    """The commands. Each error becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            _check_folder()
            return super().invoke(ctx)
        except StepscopeError as error:
            errors.print("error:", style="red", end=" ")
            errors.say(str(error))
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            if error.filename is None or isinstance(error, BrokenPipeError):
                raise
            errors.print("error:", style="red", end=" ")
            errors.say(f"{error.filename} cannot be used: {explain_error(error)}.")
            raise typer.Exit(StepscopeError.exit_code) from None
        except (KeyboardInterrupt, RuntimeError) as error:
            # During a query DuckDB turns a Ctrl-C into an error of its own.
            if isinstance(error, RuntimeError) and str(error) != "Query interrupted":
                raise
            errors.say(INTERRUPTED)
            if ctx.invoked_subcommand in GO_ON:
                errors.say(f"  {shlex.join(['python', '-m', 'runner', *sys.argv[1:]])}")
            raise typer.Exit(INTERRUPTED_CODE) from None


def _check_folder() -> None:
    """Raises UsageError where the working folder is gone, in which relative names would lead."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"The working folder cannot be used: {explain_error(error)}.", do="cd elsewhere.") from None
