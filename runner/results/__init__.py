"""The read model: results as pages, the terminal and the analysis read them. `runner.store.read` makes them, the
analysis reasons from them. Standard library and the schema only.
"""
