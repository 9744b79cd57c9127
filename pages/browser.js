// What the browser adds to Streamlit: it reports a narrow window, and takes one through the marks of a chart by keys.

const CHART = ".js-plotly-plot"

// Reports whether the window is narrow, when that is not what the server knows.
function watchWidth(data, setStateValue) {
  const query = window.matchMedia("(max-width: 700px)")
  const tell = () => { if (query.matches !== data.narrow) setStateValue("narrow", query.matches) }
  tell()
  query.addEventListener("change", tell)
  return () => query.removeEventListener("change", tell)
}

// Returns the marks of a chart that have a row behind them, in the order of its rows.
function marksOf(chart) {
  const found = chart.data.flatMap((trace, curveNumber) =>
    (trace.customdata ?? []).map((custom, pointNumber) => ({curveNumber, pointNumber, row: custom[0]})))
  return found.sort((a, b) => a.row - b.row)
}

function go(chart, keys) {
  const marks = marksOf(chart), last = marks.length - 1, at = chart.stepscopeMark ?? -1
  const next = {ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last}[keys]
  if (next === undefined || last < 0) return false
  chart.stepscopeMark = Math.max(0, Math.min(last, next))
  const {curveNumber, pointNumber} = marks[chart.stepscopeMark]
  window.Plotly?.Fx.hover(chart, [{curveNumber, pointNumber}])
  const words = [chart.data[curveNumber].hovertext].flat()[pointNumber] ?? ""
  chart.setAttribute("aria-label", new DOMParser().parseFromString(words.replaceAll("<br>", ". "), "text/html").body.textContent)
  return true
}

// Selects the mark, as a click on it does.
function open(chart) {
  const mark = marksOf(chart)[chart.stepscopeMark ?? -1]
  if (!mark) return false
  const {curveNumber, pointNumber} = mark, data = chart.data[curveNumber]
  const point = {curveNumber, pointNumber, pointIndex: pointNumber, data, fullData: chart._fullData?.[curveNumber],
                 x: data.x[pointNumber], y: data.y[pointNumber], customdata: data.customdata[pointNumber]}
  chart.emit("plotly_selected", {points: [point]})
  return true
}

function onKey(event) {
  const chart = event.target
  if (!chart.matches?.(CHART)) return
  if (event.key === "Enter" || event.key === " " ? open(chart) : go(chart, event.key)) event.preventDefault()
}

let due = 0
function makeFocusable() {
  due ||= requestAnimationFrame(() => {
    due = 0
    for (const chart of document.querySelectorAll(`${CHART}:not([tabindex])`)) {
      const alt = chart.closest("[aria-label]")?.getAttribute("aria-label") ?? "Chart"
      for (const [name, value] of Object.entries({tabindex: 0, role: "application", "aria-label": `${alt} Arrows: its marks. Enter: what is behind one.`}))
        chart.setAttribute(name, value)
    }
  })
}

export default function ({data, setStateValue}) {
  if (!window.__stepscopeKeys) {
    window.__stepscopeKeys = new MutationObserver(makeFocusable)
    window.__stepscopeKeys.observe(document.body, {childList: true, subtree: true})
    document.addEventListener("keydown", onKey)
  }
  makeFocusable()
  return watchWidth(data, setStateValue)
}
