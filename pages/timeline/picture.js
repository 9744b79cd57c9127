// Draws one frame: total, phases, addresses, time axis, in the canvas's own pixels; `ratio` of them make one of CSS.

// Returns where everything lies, in CSS pixels. The folded entry has a line of its own above the axis.
function arrange(width, height, model) {
  const total = Math.round(height * 0.3), phases = 20, axis = 22, held = model?.heldCount ? 22 : 0
  const top = total + phases
  return {width, height, total: {top: 0, height: total}, phases: {top: total, height: phases},
          blocks: {top, height: height - top - axis - held}, held: {top: height - axis - held, height: held},
          axis: {top: height - axis, height: axis}}
}

function paintOf(model, theme) {
  const own = model.head.colors.map(rgb), page = rgb(theme.page)
  const shade = share => Uint32Array.from(own, color => pixelOf(color, page, share))
  return {full: shade(1), edge: shade(0.45), faint: shade(0.22), faintEdge: shade(0.1), folded: pixelOf(rgb(theme.text), page, 0.28), page: pixelOf(page)}
}

// Returns the pixels of a part of a canvas. They are kept between frames: new megabytes would have to be collected.
const images = new WeakMap()
function imageFor(canvas, isTotal, width, height) {
  const kept = images.get(canvas) ?? images.set(canvas, {}).get(canvas), name = isTotal ? "total" : "blocks"
  if (kept[name]?.width !== width || kept[name].height !== height) kept[name] = new ImageData(width, height)
  return kept[name]
}

function drawPicture(canvas, model, view, theme, {found, ratio}) {
  const place = arrange(canvas.width / ratio, canvas.height / ratio, model), width = canvas.width
  const context = canvas.getContext("2d"), paint = paintOf(model, theme)
  const columns = model.columns(view.from, view.to, width)
  const region = (part, draw) => {
    const height = Math.round(part.height * ratio), image = imageFor(canvas, part === place.total, width, height)
    const pixels = new Uint32Array(image.data.buffer).fill(paint.page)
    draw(pixels, height)
    context.putImageData(image, 0, Math.round(part.top * ratio))
  }
  context.fillStyle = theme.page
  context.fillRect(0, 0, width, canvas.height)
  region(place.total, (pixels, height) => drawTotals(pixels, width, height, columns, model.head.scale * 1.12, paint))
  region(place.blocks, (pixels, height) => {
    drawFolded(pixels, width, height, columns, view, paint.folded)
    drawBlocks(pixels, width, height, model, view, paint, found)
  })
  context.save()
  context.scale(ratio, ratio)
  context.font = `12px ${theme.font}`
  context.textBaseline = "middle"
  drawLine(context, columns.tops, place, model.head.scale * 1.12, theme, ratio)
  drawPhases(context, model, view, place, theme)
  drawHeld(context, model, place, theme)
  drawAxes(context, model, view, place, theme)
  nameBlocks(context, model, view, place, found)
  context.restore()
  return columns.tops.reduce((most, top) => Math.max(most, top), 0)
}

function drawLine(context, tops, place, scale, theme, ratio) {
  const {height} = place.total
  context.beginPath()
  for (let x = 0; x < tops.length; x++)      // only corners: a level stretch is one line
    if (!x || x + 1 === tops.length || tops[x] !== tops[x - 1] || tops[x] !== tops[x + 1])
      context.lineTo((x + 0.5) / ratio, height - tops[x] / scale * height)
  context.strokeStyle = theme.text
  context.lineWidth = 1.2
  context.lineJoin = "round"
  context.stroke()
}

function write(context, text, x, y, theme, align = "left") {
  context.textAlign = align
  context.lineWidth = 3
  context.strokeStyle = theme.page
  context.strokeText(text, x, y)
  context.fillStyle = theme.text
  context.fillText(text, x, y)
}

function drawPhases(context, model, view, place, theme) {
  const {top, height} = place.phases, {marks} = model.head, at = time => (time - view.from) / (view.to - view.from) * place.width
  marks.forEach(([time, name], i) => {
    const left = Math.max(0, at(time)), right = Math.min(place.width, at(i + 1 < marks.length ? marks[i + 1][0] : model.end))
    if (right <= left) return
    context.globalAlpha = i % 2 ? 0.07 : 0.14
    context.fillStyle = theme.text
    context.fillRect(left, top, right - left, height)
    context.globalAlpha = 0.3
    if (at(time) > 0) context.fillRect(Math.round(left), 0, 1, place.axis.top)
    context.globalAlpha = 1
    const wide = context.measureText(name).width
    if (right - left < wide + 8) return
    context.textAlign = "center"
    context.fillText(name, (left + right) / 2, top + height / 2 + 0.5)
  })
}

// Draws the entry of blocks allocated before the recording: its line, which has no scale, and the words that fit.
function drawHeld(context, model, {held, width}, theme) {
  if (!held.height) return
  context.fillStyle = theme.text
  context.globalAlpha = 0.14
  context.fillRect(0, held.top + 2, width, held.height - 2)
  context.globalAlpha = 1
  const words = model.describeHeld(), [start, rest] = words.split(": ")
  const text = [`${words}; not to scale`, words, `Held before: ${rest}`, start].find(text => context.measureText(text).width < width - 12)
  context.textAlign = "left"
  if (text) context.fillText(text, 6, held.top + held.height / 2 + 1)
}

// Returns the step between ticks: 1, 2 or 5 times a power of ten, or a power of two for bytes.
function tickStep(span, most, base) {
  if (base === 2) return 2 ** Math.ceil(Math.log2(span / most))
  const power = 10 ** Math.floor(Math.log10(span / most))
  return [1, 2, 5, 10].map(factor => factor * power).find(step => span / step <= most)
}

function drawAxes(context, model, view, place, theme) {
  const {scale} = model.head, tall = place.total.height
  const bytes = tickStep(scale, 4, 2)
  for (let value = bytes; value <= scale; value += bytes) {
    const y = Math.round(tall - value / (scale * 1.12) * tall)
    context.fillStyle = theme.text
    context.globalAlpha = 0.16
    context.fillRect(0, y, place.width, 1)
    context.globalAlpha = 1
    write(context, formatBytes(value).replace(/\.0+ /, " "), 4, y, theme)
  }
  const span = view.to - view.from, step = tickStep(span, Math.max(3, place.width / 90), 10)
  const y = place.axis.top + place.axis.height / 2 + 2
  const digits = Math.max(0, Math.ceil(3 - Math.log10(step)))
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    const x = (time - view.from) / span * place.width, text = `${(time / 1e3).toFixed(digits)} ms`
    context.fillStyle = theme.text
    context.fillRect(Math.round(x), place.axis.top, 1, 4)
    const half = context.measureText(text).width / 2
    context.textAlign = x < half ? "left" : x > place.width - half ? "right" : "center"
    context.fillText(text, x, y)
  }
}

// Writes names on blocks that have room for one.
function nameBlocks(context, model, view, place, found) {
  const box = {left: 0, right: 0, top: 0, bottom: 0}, {blocks, width} = place
  let named = 0
  context.textAlign = "left"
  for (let i = model.bySize.length - 1; i >= 0 && named < 80; i--) {
    const block = model.bySize[i]
    if (model.bytes[block] / (view.high - view.low) * blocks.height < 13) return      // all that follow are smaller
    if (found && !found[block] || !boxOf(model, block, view, width, blocks.height, box)) continue
    if (box.bottom - box.top < 14 || box.right - box.left < 44) continue
    const {module, operation, category, size} = model.about(block), room = box.right - box.left - 10
    const words = `${module ?? operation ?? category} · ${size}`
    const text = [words, module ?? operation ?? category, size].find(text => context.measureText(text).width < room)
    named++
    if (!text) continue
    const y = blocks.top + (box.top + box.bottom) / 2
    context.fillStyle = inkOn(rgb(model.head.colors[model.category[block]]))
    context.fillText(text, box.left + 5, y)
  }
}

// Returns white or near-black, whichever is more readable on a color.
const inkOn = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#10151c" : "#ffffff"

// Draws the cursor, the block under the pointer, the pinned one and the peak.
function drawOver(canvas, model, view, theme, {hovered, pinned, cursor, ratio}) {
  const context = canvas.getContext("2d"), place = arrange(canvas.width / ratio, canvas.height / ratio, model)
  const x = time => (time - view.from) / (view.to - view.from) * place.width
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  context.clearRect(0, 0, place.width, place.height)
  context.font = `600 12px ${theme.font}`
  context.textBaseline = "middle"
  for (const [block, wide] of [[hovered, 1.5], [pinned, 2.5]]) {
    const box = {}
    if (block < 0 || !boxOf(model, block, view, place.width, place.blocks.height, box)) continue
    context.strokeStyle = theme.text
    context.lineWidth = wide
    context.strokeRect(box.left, place.blocks.top + box.top, box.right - box.left, box.bottom - box.top)
  }
  const {peak, peakAt, scale} = model.head, high = place.total.height * (1 - peak / (scale * 1.12))
  if (peakAt >= view.from && peakAt <= view.to) {
    context.beginPath()
    context.arc(x(peakAt), high, 4, 0, 7)
    context.fillStyle = theme.text
    context.fill()
    const right = x(peakAt) > place.width / 2
    write(context, `peak ${formatBytes(peak)}`, x(peakAt) + (right ? -9 : 9), Math.max(8, high), theme, right ? "right" : "left")
  }
  if (cursor >= view.from && cursor <= view.to) {
    context.fillStyle = theme.accent
    context.fillRect(Math.round(x(cursor)) - 0.75, 0, 1.5, place.axis.top + 4)
  }
}

// Saves the picture as it is seen, with its title and legend, as a file.
function savePicture({plot, over, ratio, theme, model}) {
  const {width, height} = plot, top = 30 * ratio, bottom = 30 * ratio
  const canvas = new OffscreenCanvas(width, height + top + bottom), context = canvas.getContext("2d")
  context.fillStyle = theme.page
  context.fillRect(0, 0, width, canvas.height)
  context.drawImage(plot, 0, top)
  context.drawImage(over, 0, top)
  context.scale(ratio, ratio)
  context.textBaseline = "middle"
  context.fillStyle = theme.text
  context.font = `600 13px ${theme.font}`
  context.fillText(model.head.title, 6, 15)
  context.font = `12px ${theme.font}`
  let x = 6
  const y = (height + top) / ratio + 15
  model.head.categories.forEach((name, i) => {
    if (!model.head.present[i]) return
    context.fillStyle = model.head.colors[i]
    context.fillRect(x, y - 5, 10, 10)
    context.fillStyle = theme.text
    context.fillText(name, x + 14, y)
    x += 28 + context.measureText(name).width
  })
  canvas.convertToBlob({type: "image/png"}).then(blob => {
    const link = document.createElement("a")
    link.href = URL.createObjectURL(blob)
    link.download = `stepscope-timeline-${model.head.title.replace(/[^\w.]+/g, "-")}.png`
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
  })
}
