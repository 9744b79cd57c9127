"""`python -m runner`: see `runner.cli`."""

if __name__ == "__main__":  # a worker imports this module under another name and must not import the commands
    from runner.cli import main

    main()
