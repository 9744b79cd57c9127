// The interactive timeline: canvas, keys, search, pin, picture. One `View` lives as long as its place on the page.

const FEWEST_US = 20, FRAMES_KEPT = 1000, REHEARSALS = 10

class View {
  constructor(root) {
    this.root = root
    this.find = name => root.querySelector(`.${name}`)
    this.plot = this.find("plot")
    this.over = this.find("over")
    this.frames = []
    this.draws = []
    this.hovered = this.pinned = -1
    this.text = ""
    listen(this)
    new ResizeObserver(() => this.#resize()).observe(this.find("stage"))
  }

  // Shows new data, or the same with other settings. Zoom, pin and search stay while it is the same timeline.
  show(data, setStateValue) {
    const began = performance.now(), head = headOf(data), same = this.model?.head.key === head.key
    this.tell = setStateValue
    if (same && JSON.stringify(this.model.head) === JSON.stringify(head)) return this.redraw()
    const refolded = same && this.model.head.foldHeld !== head.foldHeld
    this.model = new Model(data, head)
    if (!same) {
      this.pinned = this.hovered = -1
      this.cursor = head.peakAt
      this.#showPin()
    }
    if (!same || refolded || this.view.high > this.model.height) this.view = this.whole()
    this.searchFor(this.text)
    this.plot.setAttribute("aria-label", head.alt)
    this.#makeLegend()
    this.#showCursor()
    this.#resize()
    this.#draw()
    this.root.dataset.firstDrawMs = (performance.now() - began).toFixed(1)
    if (!same) this.#rehearse(REHEARSALS)
  }

  // Draws the same picture a few times more while the browser is idle, which then compiles the code: otherwise the
  // first turns of the wheel would take ten times as long as the later ones.
  #rehearse(times) {
    const idle = window.requestIdleCallback ?? (act => setTimeout(act, 50))
    idle(() => { this.#draw(); if (times > 1) this.#rehearse(times - 1) })
  }

  whole() { return {from: 0, to: this.model.end, low: 0, high: this.model.height} }

  #resize() {
    if (!this.model) return
    const {clientWidth, clientHeight} = this.find("stage"), ratio = Math.min(2, window.devicePixelRatio || 1)
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)]
    if (!width || this.plot.width === width && this.plot.height === height) return
    for (const canvas of [this.plot, this.over]) { canvas.width = width; canvas.height = height }
    this.ratio = ratio
    this.redraw()
  }

  // Draws in the next frame; `since` is the time of the event that asked for it.
  redraw(since) {
    this.since ??= since
    this.due ||= requestAnimationFrame(() => this.#draw())
  }

  #draw() {
    const began = performance.now()
    cancelAnimationFrame(this.due)
    this.due = 0
    if (!this.ratio) return
    const style = getComputedStyle(this.root), read = name => style.getPropertyValue(name).trim()
    this.theme = {page: read("--st-background-color") || "#fff", text: read("--st-text-color") || "#000",
                  accent: read("--st-primary-color") || "#36c", font: read("--st-font") || "sans-serif"}
    const drawn = drawPicture(this.plot, this.model, this.view, this.theme, this)
    this.#drawOver()
    const {from, to, low, high} = this.view, since = this.since
    Object.assign(this.root.dataset, {drawnPeak: drawn, window: [from, to, low, high].map(Math.round).join()})
    this.since = undefined
    if (since === undefined) return
    this.draws = [...this.draws, +(performance.now() - began).toFixed(1)].slice(-FRAMES_KEPT)
    const channel = new MessageChannel()      // its message comes after the browser has painted this frame
    channel.port1.onmessage = () => {
      this.frames = [...this.frames, +(performance.now() - since).toFixed(1)].slice(-FRAMES_KEPT)
      Object.assign(this.root.dataset, {framesMs: this.frames.join(), drawsMs: this.draws.join()})
      channel.port1.close()
    }
    channel.port2.postMessage(0)
  }

  #drawOver() { drawOver(this.over, this.model, this.view, this.theme, this) }

  // ---------------------------------------------------------------------------------------------------- the window

  look(view, since) {
    const {end, height} = this.model, clamp = (low, high, fewest, most) => {
      const span = Math.min(most, Math.max(fewest, high - low)), start = Math.min(most - span, Math.max(0, low))
      return [start, start + span]
    }
    const now = {...this.view, ...view}
    const [from, to] = clamp(now.from, now.to, Math.min(FEWEST_US, end), end)
    const [low, high] = clamp(now.low, now.high, Math.min(4096, height), height)
    this.view = {from, to, low, high}
    this.redraw(since)
  }

  // `x` and `y` are shares of the picture that stay where they are.
  zoom(factor, {x = 0.5, y = 0.5, addresses = false, since} = {}) {
    const {from, to, low, high} = this.view
    if (addresses) {
      const at = low + (high - low) * y
      return this.look({low: at - (at - low) * factor, high: at + (high - at) * factor}, since)
    }
    const at = from + (to - from) * x
    this.look({from: at - (at - from) * factor, to: at + (to - at) * factor}, since)
  }

  move(across, up, since) {
    const {from, to, low, high} = this.view, time = (to - from) * across, bytes = (high - low) * up
    this.look({from: from + time, to: to + time, low: low + bytes, high: high + bytes}, since)
  }

  // Moves the window to a moment, without zooming.
  #reveal(time) {
    const {from, to} = this.view
    if (time < from || time > to) this.look({from: time - (to - from) / 2, to: time + (to - from) / 2})
  }

  // ------------------------------------------------------------------------------------------- cursor, pin and search

  setCursor(time) {
    this.cursor = Math.min(this.model.end, Math.max(0, Math.round(time)))
    this.#reveal(this.cursor)
    this.#showCursor()
    this.redraw()
    clearTimeout(this.telling)
    this.telling = setTimeout(() => this.tell("cursor", {timeline: this.model.head.key, at: this.cursor}), 150)
  }

  pinBlock(block) {
    this.pinned = block
    this.#showPin()
    this.redraw()
  }

  #showCursor() {
    const {parts} = this.model.aliveAt(this.cursor)
    this.root.dataset.cursor = this.cursor
    this.find("legend").querySelectorAll("output").forEach((place, i) => {
      place.textContent = parts[i] ? formatBytes(parts[i]) : "none"
      place.parentElement.classList.toggle("none", !parts[i])
    })
  }

  #showPin() {
    const place = this.find("pin")
    place.hidden = this.pinned < 0
    this.root.dataset.pinned = this.pinned
    if (place.hidden) return place.replaceChildren()
    describe(place, this.model.about(this.pinned), Infinity)
    place.style.borderLeftColor = this.model.head.colors[this.model.category[this.pinned]]
  }

  searchFor(text) {
    this.text = text
    this.found = this.model.search(text)
    let count = 0, bytes = 0
    this.found?.forEach((hit, i) => {
      count += hit
      if (hit && this.model.born[i] <= this.cursor && this.model.died[i] > this.cursor) bytes += this.model.bytes[i]
    })
    this.root.dataset.matches = this.found ? count : ""
    this.find("found").textContent = !this.found ? "" : count ? `${count.toLocaleString("en-US")} found · ${formatBytes(bytes)} at the cursor` : "nothing found"
    this.redraw()
  }

  nextMatch() {
    const hits = [...(this.found ?? [])].flatMap((hit, i) => hit ? [i] : [])
    if (!hits.length) return
    const next = hits.find(block => block > this.pinned) ?? hits[0]
    this.pinBlock(next)
    this.setCursor(this.model.born[next])
  }

  // Returns the block at a point of the stage, -1 for none; the largest where several share a pixel.
  blockAt(x, y) {
    const {width, blocks} = arrange(this.find("stage").clientWidth, this.find("stage").clientHeight, this.model), box = {}
    const wide = Math.round(width * this.ratio), tall = Math.round(blocks.height * this.ratio)
    const column = Math.floor(x * this.ratio), row = Math.floor((y - blocks.top) * this.ratio)
    if (row < 0 || row >= tall) return -1
    for (let i = this.model.bySize.length - 1; i >= 0; i--) {
      const block = this.model.bySize[i]
      if (boxOf(this.model, block, this.view, wide, tall, box) && column >= box.left && column < box.right && row >= box.top && row < box.bottom)
        return block
    }
    return -1
  }

  // ------------------------------------------------------------------------------------------------ words and pictures

  hover(at) {
    const tip = this.find("tip"), block = at ? this.blockAt(at.px, at.py) : -1
    if (block !== this.hovered) {
      this.hovered = block
      this.#drawOver()
      if (block >= 0) describe(tip, this.model.about(block), 4)
    }
    const words = at && block < 0 && this.#describeAt(at)
    if (words) describe(tip, {...words, frames: []}, 0)
    tip.hidden = block < 0 && !words
    if (tip.hidden) return
    const stage = this.find("stage"), left = at.px + 16 + tip.offsetWidth > stage.clientWidth ? at.px - 16 - tip.offsetWidth : at.px + 16
    tip.style.left = `${Math.max(0, left)}px`
    tip.style.top = `${Math.max(0, Math.min(at.py + 12, stage.clientHeight - tip.offsetHeight))}px`
  }

  // Describes a point without a block: the total above the addresses, the folded blocks within them.
  #describeAt({x, y}) {
    const {from, to, low, high} = this.view, {model} = this, time = from + x * (to - from), place = low + y * (high - low)
    const {tops, folds} = model.columns(time, time + (to - from) / 1000, 1), least = formatBytes(model.least)
    if (y > 1) return {size: formatBytes(tops[0]), category: "in all", phase: model.phaseAt(time), life: formatTime(time)}
    if (y < 0 && model.heldCount) return {size: formatBytes(model.heldBytes), category: `${model.heldCount.toLocaleString("en-US")} allocations held before the recording, folded together`}
    if (y < 0 || place < 0 || place >= folds[0]) return null
    return {size: formatBytes(folds[0]), category: `blocks below ${least}, folded together`}
  }

  #makeLegend() {
    this.find("legend").replaceChildren(...this.model.head.categories.flatMap((name, i) => {
      const item = document.createElement("li"), patch = document.createElement("i"), held = document.createElement("output")
      patch.style.background = this.model.head.colors[i]
      item.append(patch, name, held)
      item.hidden = !this.model.head.present[i]
      return [item]
    }))
  }
}

// Writes about a block as text, because names come from files of others; at most `most` frames of its stack.
function describe(place, {size, category, phase, module, operation, life, frames}, most) {
  const line = (tag, ...texts) => Object.assign(document.createElement(tag), {textContent: texts.filter(Boolean).join(" · ")})
  const shown = frames.slice(0, most), rest = frames.length - shown.length
  const stack = line("pre", [...shown, ...(rest > 0 && most ? [`… ${rest} more: click to pin`] : [])].join("\n"))
  const lines = [line("b", size), line("p", category, phase, life), line("p", module, operation), stack]
  place.replaceChildren(...lines.filter(item => item.textContent))
}

const views = new WeakMap()

export default function ({data, parentElement, setStateValue}) {
  const root = parentElement.querySelector(".timeline")
  if (!root || !data) return
  if (!views.has(root)) views.set(root, new View(root))
  views.get(root).show(data, setStateValue)
}
