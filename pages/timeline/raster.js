// Draws by pixels into a Uint32Array. At one moment no two blocks share an address, so the pixels to fill are never many
// more than the picture has, however many blocks there are.

// Returns a color as one number, as canvases store it (little endian: ABGR); `share` mixes it with `other`.
function pixelOf(color, other = color, share = 1) {
  const mix = [0, 1, 2].map(i => Math.round(color[i] * share + other[i] * (1 - share)))
  return (255 << 24 | mix[2] << 16 | mix[1] << 8 | mix[0]) >>> 0
}

// Returns [red, green, blue] of any CSS color.
const colors = new Map()
function rgb(text) {
  if (!colors.has(text)) {
    const one = new OffscreenCanvas(1, 1).getContext("2d")
    one.fillStyle = text
    one.fillRect(0, 0, 1, 1)
    colors.set(text, [...one.getImageData(0, 0, 1, 1).data])
  }
  return colors.get(text)
}

function fillBox(pixels, width, {left, right, top, bottom}, color) {
  if (right - left > 16) for (let y = top; y < bottom; y++) pixels.fill(color, y * width + left, y * width + right)
  else for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) pixels[y * width + x] = color
}

// Computes where a block lies in a picture of width x height: whole pixels, at least one each way. False if outside.
function boxOf(model, block, view, width, height, box) {
  if (model.born[block] >= view.to || model.died[block] <= view.from || model.bytes[block] < model.least || model.held[block]) return false
  const across = width / (view.to - view.from), up = height / (view.high - view.low)
  const low = (model.place[block] - view.low) * up, high = low + model.bytes[block] * up
  if (high < 0 || low > height) return false
  const left = (model.born[block] - view.from) * across, right = (model.died[block] - view.from) * across
  box.left = left > 0 ? left | 0 : 0
  box.right = Math.max(box.left + 1, right < width ? right | 0 : width)
  box.top = high < height ? height - high | 0 : 0
  box.bottom = Math.min(height, Math.max(box.top + 1, low > 0 ? height - low | 0 : height))
  return box.left < width && box.top < height
}

// Draws the blocks, small ones first, so that the largest in a pixel shows; matches of a search come last.
function drawBlocks(pixels, width, height, model, view, paint, found) {
  const box = {left: 0, right: 0, top: 0, bottom: 0}
  for (let pass = 0; pass < (found ? 2 : 1); pass++) {
    for (const block of model.bySize) {
      if (found && found[block] !== pass || !boxOf(model, block, view, width, height, box)) continue
      const kind = model.category[block], faint = found && !pass
      const wide = box.right - box.left, tall = box.bottom - box.top
      if (wide < 4 || tall < 4) { fillBox(pixels, width, box, (faint ? paint.faint : paint.full)[kind]); continue }
      fillBox(pixels, width, box, (faint ? paint.faintEdge : paint.edge)[kind])
      box.top++      // the edge: a row above and a column to the right
      box.right--
      fillBox(pixels, width, box, (faint ? paint.faint : paint.full)[kind])
    }
  }
}

// Draws the parts of the total, a column of pixels for each column of `tops`, from the bottom up.
function drawTotals(pixels, width, height, columns, scale, paint) {
  const kinds = paint.full.length
  for (let x = 0; x < width; x++) {
    let held = 0, below = height
    for (let kind = 0; kind < kinds; kind++) {
      held += columns.parts[x * kinds + kind]
      const top = Math.max(0, Math.round(height - held / scale * height))
      for (let y = top; y < below; y++) pixels[y * width + x] = paint.full[kind]
      below = Math.min(below, top)
    }
  }
}

// Draws the total of the folded blocks over time, at the bottom of the addresses.
function drawFolded(pixels, width, height, columns, view, color) {
  const up = height / (view.high - view.low)
  for (let x = 0; x < width; x++) {
    const top = Math.max(0, Math.round(height - (columns.folds[x] - view.low) * up))
    const bottom = Math.min(height, Math.round(height + view.low * up))
    for (let y = top; y < bottom; y++) pixels[y * width + x] = color
  }
}
