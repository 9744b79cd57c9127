"""The queries of pages and reports, which return typed rows. This is the only SQL outside of the store itself.

    from runner.store.queries.selection import Selection
    from runner.store.queries.steps import load_steps
    cells = load_steps(Path("data/results.duckdb"), Selection(mode="train"))

`selection` narrows, `overview` says what is in the file, `steps` gives times and samples, `tables` pages through
whole tables, `progress` follows a running sweep. Each call opens the file, reads and closes it. It raises
DatabaseMissing, DatabaseBusy or DatabaseForeign of `runner.errors`.
"""
