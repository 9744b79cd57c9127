"""Keeps the zoom of the charts while new rows arrive.

    keep_zoom()          # once a page

Streamlit builds a chart anew when its figure changes, and Plotly's `uirevision` only survives an update. This little
script remembers the axis ranges that a reader has set, for each card and `uirevision`, and sets them again on the new
chart. It needs the page's own Plotly and asks for nothing from outside.
"""

import streamlit as st

_SCRIPT = """
const kept = window.__stepscopeZoom ??= new Map()
const nameOf = chart => {
  const card = chart.closest('[class*="st-key-card-"]')
  const key = card && [...card.classList].find(name => name.startsWith("st-key-card-"))
  return key && `${location.pathname} ${key} ${chart._fullLayout?.uirevision}`
}
const isRange = name => /^[xy]axis\\d*\\.range/.test(name)

function attend(chart) {
  if (chart.__stepscope || !chart._fullLayout || !chart.on) return
  chart.__stepscope = true
  const name = nameOf(chart)
  if (!name) return
  if (kept.has(name) && window.Plotly) window.Plotly.relayout(chart, {...kept.get(name)})
  chart.on("plotly_relayout", change => {
    const ranges = Object.entries(change).filter(([key]) => isRange(key))
    if (ranges.length) kept.set(name, {...kept.get(name), ...Object.fromEntries(ranges)})
  })
  chart.on("plotly_doubleclick", () => setTimeout(() => kept.delete(name)))
}

let due = 0
const look = () => { due = 0; document.querySelectorAll(".js-plotly-plot").forEach(attend) }
const soon = () => { due ||= setTimeout(look, 60) }

export default function () {
  soon()
  if (window.__stepscopeWatch) return
  window.__stepscopeWatch = new MutationObserver(soon)
  window.__stepscopeWatch.observe(document.body, {childList: true, subtree: true})
}
"""


def keep_zoom() -> None:
    """Start watching; further calls change nothing."""
    st.components.v2.component("stepscope_zoom", js=_SCRIPT)(key="zoom", height=1)
