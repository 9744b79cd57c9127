"""`python -m runner`: see `runner.cli.main`."""

import sys

from runner.errors import INTERRUPTED, INTERRUPTED_CODE

if __name__ == "__main__":  # a worker imports this module under another name and must not import the commands
    try:
        from runner.cli.main import main

        main()
    except KeyboardInterrupt:  # during the imports, which take a second, no command can handle it
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(INTERRUPTED_CODE)
