// The axes of cards that a reader has zoomed: kept while charts are rebuilt, read from the address, written to it.

const kept = window.__stepscopeZoom ??= new Map()     // "path card uirevision" -> {x: [low, high], y2: …}
const views = window.__stepscopeViews ??= new Map()   // "path card" -> the view of another drawing
const drawn = window.__stepscopeDrawn ??= new Set()   // "path card" of charts that had their zoom from the address
const CARD = "st-key-card-"

const charts = () => [...document.querySelectorAll(".js-plotly-plot")].filter(chart => chart._fullLayout && cardOf(chart))
const cardOf = chart => {
  const card = chart.closest(`[class*="${CARD}"]`)
  return card && [...card.classList].find(name => name.startsWith(CARD))?.slice(CARD.length)
}
const nameOf = chart => `${location.pathname} ${cardOf(chart)} ${chart._fullLayout.uirevision}`
const readAddress = () => new Map(new URLSearchParams(location.search).getAll("zoom")
  .map(text => text.match(/^([\w-]{1,60}):(.{1,300})$/)).filter(Boolean).map(([, card, text]) => [card, text]))

const axisOf = (chart, name) => /^[xy]\d*$/.test(name) ? chart._fullLayout[`${name[0]}axis${name.slice(1)}`] : undefined
const isEnd = (text, axis) => axis.type === "date" ? /^\d{4}-\d\d-\d\d[\d :.]*$/.test(text)
  : /^-?\d+(\.\d+)?(e-?\d+)?$/.test(text) && Math.abs(text) < (axis.type === "log" ? 300 : 1e15)

// Returns the ranges in a link's text, of axes that the chart has.
function parseRanges(chart, text) {
  const ranges = {}, parts = text.split(",")
  for (let i = 0; i + 2 < parts.length; i += 3) {
    const [name, ...ends] = parts.slice(i, i + 3), axis = axisOf(chart, name)
    if (axis && ends.every(end => isEnd(end, axis)) && ends[0] !== ends[1])
      ranges[name] = axis.type === "date" ? ends : ends.map(Number)
  }
  return Object.keys(ranges).length ? ranges : undefined
}

// Rounds the ends to a hundred-thousandth of the range.
function roundRange([low, high]) {
  if (typeof low === "string") return [low, high]
  const places = Math.min(20, Math.max(0, 4 - Math.floor(Math.log10(Math.abs(high - low)))))
  return [low, high].map(end => +end.toFixed(places))
}

const formatRanges = ranges => Object.entries(ranges).map(([axis, range]) => [axis, ...roundRange(range)].join()).join()

// Returns the views for a link: of drawn charts as they are now, of other cards as the address has them.
function collectViews() {
  const found = readAddress(), put = (card, text) => text ? found.set(card, text) : found.delete(card)
  for (const chart of charts()) {
    const ranges = kept.get(nameOf(chart))
    if (chart.__stepscope) put(cardOf(chart), ranges && formatRanges(ranges))
  }
  for (const [name, text] of views) {
    const [path, card] = name.split(" ")
    if (path === location.pathname && document.querySelector(`.${CARD}${card}`)) put(card, text)
  }
  return [...found].map(([card, text]) => `${card}:${text}`).sort()
}

function writeAddress() {
  const now = collectViews(), text = now.join("\n"), query = new URLSearchParams(location.search)
  if (query.getAll("zoom").sort().join("\n") !== text) {
    query.delete("zoom")
    for (const view of now) query.append("zoom", view)
    const search = query.size ? `?${query}` : ""
    history.replaceState(history.state, "", `${location.pathname}${search}${location.hash}`)
  }
  if (text === (window.__stepscopeTold ?? "") || !window.__stepscopeTell) return
  window.__stepscopeTold = text
  window.__stepscopeTell("zoom", now)
}

function watchChart(chart) {
  if (chart.__stepscope || !chart.on || !window.Plotly) return
  chart.__stepscope = true
  const name = nameOf(chart), page = `${location.pathname} ${cardOf(chart)}`
  if (!kept.has(name) && !drawn.has(page)) {
    const ranges = parseRanges(chart, readAddress().get(cardOf(chart)) ?? "")
    if (ranges) kept.set(name, ranges)
  }
  drawn.add(page)
  if (kept.has(name)) {
    const full = ([axis, range]) => [`${axis[0]}axis${axis.slice(1)}.range`, [...range]]
    window.Plotly.relayout(chart, Object.fromEntries(Object.entries(kept.get(name)).map(full)))
  }
  chart.on("plotly_relayout", change => rememberRanges(chart, change))
  chart.on("plotly_doubleclick", () => setTimeout(() => { kept.delete(nameOf(chart)); writeAddress() }))
}

// Remembers a chart's new ranges. Axes that move together count as one, under the name of the first.
function rememberRanges(chart, change) {
  const ranges = {...kept.get(nameOf(chart))}
  for (const key of Object.keys(change)) {
    const [, letter, number, what] = key.match(/^([xy])axis(\d*)\.(range|autorange)/) ?? []
    if (!letter) continue
    const axis = axisOf(chart, letter + number)
    if (what === "range") ranges[axis.matches ?? letter + number] = [...axis.range]
    else if (change[key]) delete ranges[letter + number]
  }
  if (Object.keys(ranges).length) kept.set(nameOf(chart), ranges)
  else kept.delete(nameOf(chart))
  writeAddress()
}

// Zooms a new chart before it is first painted; the address can wait.
let painting = 0, due = 0
const look = () => { painting = 0; charts().forEach(watchChart) }
const schedule = () => {
  painting ||= requestAnimationFrame(look)
  due ||= setTimeout(() => { due = 0; writeAddress() }, 60)
}

export default function ({setStateValue}) {
  window.__stepscopeTell = setStateValue
  schedule()
  if (window.__stepscopeWatch) return
  window.__stepscopeWatch = new MutationObserver(schedule)
  window.__stepscopeWatch.observe(document.body, {childList: true, subtree: true})
  window.addEventListener("stepscope-view", schedule)
}
