"""The read model: results as pages, the terminal and the analysis read them.

    for cell in load_steps(path, Selection(mode="train")):     # runner.store.read brings them
        print(cell.cell.context, cell.status, cell.times["step"].median_ms)

The store makes them, the analysis reasons from them. Standard library and the schema only.
"""
