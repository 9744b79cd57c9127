// Mouse, touch and keys of a `View`.

function listen(view) {
  const {plot, root} = view
  point(view, plot)
  plot.addEventListener("wheel", event => {
    if (root.getRootNode().activeElement !== plot && !event.ctrlKey && !event.metaKey) return
    event.preventDefault()
    view.hover(null)
    const {x, y} = place(view, event), turned = Math.max(-200, Math.min(200, event.deltaY || event.deltaX))
    view.zoom(Math.exp(turned * 0.002), {x, y: Math.min(1, Math.max(0, y)), addresses: event.shiftKey, since: event.timeStamp})
  }, {passive: false})
  plot.addEventListener("keydown", event => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys(view, event.timeStamp)[event.key.toLowerCase()]
    if (!act || !view.model) return
    event.preventDefault()
    event.stopPropagation()
    act()
  })
  const click = (name, act) => view.find(name).addEventListener("click", event => view.model && act(event.timeStamp))
  click("in", since => view.zoom(0.6, {since}))
  click("out", since => view.zoom(1 / 0.6, {since}))
  click("fit", since => view.look(view.whole(), since))
  click("peak", () => view.setCursor(view.model.head.peakAt))
  click("save", () => savePicture(view))
  const search = view.find("search")
  search.addEventListener("input", () => {
    view.searchFor(search.value)
  })
  search.addEventListener("keydown", event => {
    if (event.key === "Enter") view.nextMatch()
    event.stopPropagation()     // Streamlit's own keys
  })
}

const keys = (view, since) => ({
  arrowleft: () => view.move(-0.15, 0, since),
  arrowright: () => view.move(0.15, 0, since),
  arrowup: () => view.move(0, 0.15, since),
  arrowdown: () => view.move(0, -0.15, since),
  "+": () => view.zoom(0.6, {since}),
  "=": () => view.zoom(0.6, {since}),
  "-": () => view.zoom(1 / 0.6, {since}),
  "]": () => view.zoom(0.6, {addresses: true, since}),
  "[": () => view.zoom(1 / 0.6, {addresses: true, since}),
  0: () => view.look(view.whole(), since),
  home: () => view.look(view.whole(), since),
  p: () => view.setCursor(view.model.head.peakAt),
  n: () => view.nextMatch(),
  ",": () => view.setCursor(view.model.eventBeside(view.cursor, -1)),
  ".": () => view.setCursor(view.model.eventBeside(view.cursor, 1)),
  enter: () => view.pinBlock(view.model.aliveAt(view.cursor).largest),
  escape: () => view.pinBlock(-1),
  "/": () => view.find("search").focus(),
})

// Returns where an event is: in pixels of the stage, and as shares of time and of the addresses from below.
function place(view, event) {
  const rect = view.plot.getBoundingClientRect(), {blocks, width} = arrange(rect.width, rect.height, view.model)
  const px = event.clientX - rect.left, py = event.clientY - rect.top
  return {px, py, x: px / width, y: 1 - (py - blocks.top) / blocks.height, width, height: blocks.height}
}

// Handles hover, drag and click.
function point(view, plot) {
  let grip = null
  const release = () => { grip = null; plot.classList.remove("dragging") }
  plot.addEventListener("pointerdown", event => {
    if (event.button || !view.model) return
    plot.focus({preventScroll: true})
    plot.setPointerCapture(event.pointerId)
    grip = {x: event.clientX, y: event.clientY, view: view.view, moved: false}
  })
  plot.addEventListener("pointermove", event => {
    if (!view.model) return
    const at = place(view, event)
    if (!grip) return view.hover(at)
    const across = event.clientX - grip.x, up = event.clientY - grip.y
    grip.moved ||= Math.hypot(across, up) > 4
    if (!grip.moved) return
    plot.classList.add("dragging")
    view.hover(null)
    const {from, to, low, high} = grip.view, time = -across / at.width * (to - from), bytes = up / at.height * (high - low)
    view.look({from: from + time, to: to + time, low: low + bytes, high: high + bytes}, event.timeStamp)
  })
  plot.addEventListener("pointerup", event => {
    const clicked = grip && !grip.moved, at = place(view, event)
    release()
    if (!clicked) return
    view.pinBlock(view.blockAt(at.px, at.py))
    view.setCursor(view.view.from + at.x * (view.view.to - view.view.from))
  })
  plot.addEventListener("pointercancel", release)
  plot.addEventListener("pointerleave", () => view.hover(null))
}
