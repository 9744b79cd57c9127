"""What pages and reports ask of the file: typed rows, aggregated in SQL. The only SQL outside of the store itself.

    from runner.store.queries.selection import Selection
    from runner.store.queries.steps import measured
    cells = measured(Path("data/results.duckdb"), Selection(mode="train"))

`selection` narrows, `overview` says what is in the file, `steps` gives times and samples, `tables` pages through
whole tables, `progress` follows a running sweep. Each call opens the file, reads, and closes it again. Raises
DatabaseMissing, DatabaseBusy or DatabaseForeign of `runner.errors`.
"""
