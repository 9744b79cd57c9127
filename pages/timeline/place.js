// The view for the address: `<recording>,<from>,<to>,<low>,<high>,<cursor>,<block>,<search text>`, each empty where it is
// unchanged. `pages.ui.zoom` puts it there, as `zoom=timeline-left:…`; Python reads the cursor from it.

const CARD = "st-key-card-"

function cardOf(root) {
  const card = (root.getRootNode().host ?? root).closest(`[class*="${CARD}"]`)
  return [...card?.classList ?? []].find(name => name.startsWith(CARD))?.slice(CARD.length) ?? ""
}

const recording = model => model.head.key.slice(-8)

// Returns the address's view of this recording; null if there is none.
function readPlace(root, model) {
  const start = `${cardOf(root)}:${recording(model)},`
  const text = new URLSearchParams(location.search).getAll("zoom").find(text => text.startsWith(start))
  if (!text) return null
  const parts = text.slice(start.length).split(","), numbers = parts.slice(0, 6).map(part => /^\d{1,16}$/.test(part) ? +part : NaN)
  const [from, to, low, high, cursor, block] = numbers
  return {
    view: from < to && low < high ? {from, to, low, high} : {},
    cursor: cursor <= model.end ? cursor : model.head.peakAt,
    pinned: block < model.count ? block : -1,
    text: parts.slice(6).join(),
  }
}

function formatPlace({model, view, cursor, pinned, text}, whole) {
  const window = ["from", "to", "low", "high"].map(name => Math.round(view[name]))
  const isWhole = ["from", "to", "low", "high"].every((name, i) => window[i] === Math.round(whole[name]))
  const parts = [...(isWhole ? ["", "", "", ""] : window), cursor === model.head.peakAt ? "" : cursor, pinned < 0 ? "" : pinned, text.trim()]
  return parts.some(part => part !== "") ? [recording(model), ...parts].join() : ""
}

function storePlace(root, text) {
  (window.__stepscopeViews ??= new Map()).set(`${location.pathname} ${cardOf(root)}`, text)
  window.dispatchEvent(new Event("stepscope-view"))
}

function forgetPlace(root) { window.__stepscopeViews?.delete(`${location.pathname} ${cardOf(root)}`) }
