"""The baseline for the dashboard's speed: the shortest Streamlit page that draws one chart of the same rows.

STEPSCOPE_DB=… streamlit run tests/bench/one_chart.py
"""

import os

import duckdb
import plotly.graph_objects as go
import streamlit as st

with duckdb.connect(os.environ["STEPSCOPE_DB"], read_only=True) as con:
    sizes = [row[0] for row in con.execute("SELECT DISTINCT d_model FROM steps ORDER BY 1").fetchall()]
    chosen = st.pills("Size", sizes, selection_mode="multi") or sizes
    rows = con.execute(
        "SELECT d_model || ' · ' || context, phase, median(median_ms) FROM steps JOIN timings USING (cell_id) "
        "WHERE mode = 'train' AND precision = 'fp32' AND backend = 'eager' AND list_contains(?, d_model) GROUP BY ALL",
        [chosen],
    ).fetchall()
figure = go.Figure()
for phase in ("forward", "loss", "backward", "optimizer"):
    part = [row for row in rows if row[1] == phase]
    figure.add_bar(orientation="h", name=phase, y=[row[0] for row in part], x=[row[2] for row in part])
st.plotly_chart(figure.update_layout(barmode="stack", height=900))
