// The columns that Python packed, and what is computed from them once: addresses without unused gaps, allocations and
// frees in the order of time, the exact total. Times are whole microseconds; a block is alive at t if born <= t < died.

const ARRAYS = {int32: Int32Array, float64: Float64Array, uint8: Uint8Array}

function headOf(data) {
  const size = new DataView(data.buffer, data.byteOffset).getUint32(0, true)
  return {...JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + size))), start: Math.ceil((4 + size) / 8) * 8}
}

class Model {
  constructor(data, head) {
    const buffer = data.slice(head.start).buffer
    for (const [name, type, offset, length] of head.columns) this[name] = new ARRAYS[type](buffer, offset, length)
    this.head = head
    this.count = this.bytes.length
    this.end = Math.max(1, head.duration)
    this.#orderEvents()
    this.#foldHeld(head.foldHeld)
    this.fold(head.fold)
  }

  // Merges allocations (block number) and frees (its complement), both already sorted, by time.
  #orderEvents() {
    const {born, died, byDeath, count} = this
    const deaths = byDeath.length
    this.events = new Int32Array(count + deaths)
    this.at = new Int32Array(count + deaths)
    for (let b = 0, d = 0, e = 0; e < count + deaths; e++) {
      const dies = d < deaths && (b === count || died[byDeath[d]] < born[b])
      this.at[e] = dies ? died[byDeath[d]] : born[b]
      this.events[e] = dies ? ~byDeath[d++] : b++
    }
    for (let i = 0; i < count; i++) if (died[i] < 0) died[i] = 0x7fffffff
  }

  // Folds blocks allocated before the recording into one entry below the picture, unless there are no others. `held`
  // marks each of those blocks.
  #foldHeld(wanted) {
    const {born, bytes, count} = this
    this.held = new Uint8Array(count)
    this.heldCount = this.heldBytes = 0
    if (!wanted || !count || !born[count - 1]) return
    for (let i = 0; i < count && !born[i]; i++) {
      this.held[i] = 1
      this.heldCount++
      this.heldBytes += bytes[i]
    }
  }

  describeHeld() {
    const one = this.heldCount === 1
    return `Held before the recording: ${this.heldCount.toLocaleString("en-US")} allocation${one ? "" : "s"}, ${formatBytes(this.heldBytes)}`
  }

  // Folds blocks below `least` bytes at the bottom; above are the others, by address, without unused gaps.
  fold(least) {
    this.least = least
    this.place = new Float64Array(this.count)
    const {bytes, address, held} = this
    let total = 0, most = 0
    for (let e = 0; e < this.events.length; e++) {
      const event = this.events[e], block = event < 0 ? ~event : event
      if (bytes[block] >= least || held[block]) continue
      total += event < 0 ? -bytes[block] : bytes[block]
      if (e + 1 === this.events.length || this.at[e + 1] > this.at[e]) most = Math.max(most, total)
    }
    this.foldedHeight = most
    let reached = -1, gap = 0
    for (const block of this.byAddress) {
      if (bytes[block] < least || held[block]) continue
      if (reached < 0) { reached = address[block]; gap = reached - most }
      if (address[block] > reached) gap += address[block] - reached
      this.place[block] = address[block] - gap
      reached = Math.max(reached, address[block] + bytes[block])
    }
    this.height = Math.max(1, reached < 0 ? most : reached - gap)
  }

  // Returns for each of `width` columns of pixels its largest total, the parts of that by category, and the largest
  // folded total. A column covers its own span and the state before it, so that no peak is lost between two pixels.
  columns(from, to, width) {
    const kinds = this.head.categories.length, {events, at, bytes, category, held, least, head} = this
    const tops = new Float64Array(width), parts = new Float64Array(width * kinds), folds = new Float64Array(width)
    const now = new Float64Array(kinds)
    let total = 0, small = 0, event = 0
    const apply = until => {
      while (event < events.length && at[event] <= until) {
        const next = events[event++], block = next < 0 ? ~next : next, size = next < 0 ? -bytes[block] : bytes[block]
        now[category[block]] += size
        total += size
        if (bytes[block] < least && !held[block]) small += size
      }
    }
    apply(Math.floor(from))
    for (let x = 0; x < width; x++) {
      const until = from + (to - from) * (x + 1) / width
      tops[x] = -1
      for (;;) {
        if (total > tops[x]) { tops[x] = total; parts.set(now, x * kinds) }
        if (small > folds[x]) folds[x] = small
        if (event >= events.length || at[event] >= until) break
        apply(at[event])
      }
      const start = from + (to - from) * x / width
      if (head.peakAt >= start && head.peakAt < until) tops[x] = Math.max(tops[x], head.peak)
    }
    return {tops, parts, folds}
  }

  aliveAt(time) {
    const parts = new Float64Array(this.head.categories.length)
    let largest = -1
    for (let i = 0; i < this.count && this.born[i] <= time; i++) {
      if (this.died[i] <= time) continue
      parts[this.category[i]] += this.bytes[i]
      if (!this.held[i] && (largest < 0 || this.bytes[i] > this.bytes[largest])) largest = i
    }
    return {parts, largest}
  }

  phaseAt(time) { return this.head.marks.findLast(([at]) => at <= time)?.[1] }

  // Returns the moment of the event before (-1) or after (1) a time.
  eventBeside(time, direction) {
    const {at} = this
    if (direction > 0) return at.find(moment => moment > time) ?? time
    return at.findLast(moment => moment < time) ?? time
  }

  // Returns 1 for each block whose module, operation or stack contains the text, else 0; null for no text.
  search(text) {
    const query = text.trim().toLowerCase()
    if (!query) return null
    const has = names => names.map(name => name.toLowerCase().includes(query))
    const frames = has(this.head.frames), stacks = this.head.stacks.map(numbers => numbers.some(number => frames[number]))
    const modules = has(this.head.modules), operations = has(this.head.operations)
    const mask = new Uint8Array(this.count)
    for (let i = 0; i < this.count; i++)
      mask[i] = modules[this.module[i]] || operations[this.operation[i]] || stacks[this.stack[i]] ? 1 : 0
    return mask
  }

  // Describes one block.
  about(block) {
    const {head} = this, died = this.died[block]
    return {
      size: formatBytes(this.bytes[block]), category: head.categories[this.category[block]],
      phase: head.phases[this.phase[block]] && `born in ${head.phases[this.phase[block]]}`,
      module: head.modules[this.module[block]], operation: head.operations[this.operation[block]],
      life: `${formatTime(this.born[block])} – ${died > this.end ? "the end" : formatTime(died)}`,
      frames: (head.stacks[this.stack[block]] ?? []).map(number => head.frames[number]),
    }
  }
}

// Formats bytes as `runner.formats.format_bytes` does: three digits and a binary prefix.
function formatBytes(bytes) {
  for (const [power, unit] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]])
    if (bytes >= 2 ** power) return `${threeDigits(bytes / 2 ** power)} ${unit}`
  return `${Math.round(bytes).toLocaleString("en-US")} bytes`
}

function threeDigits(value) {
  if (value >= 999.5) return (10 * Math.round(value / 10)).toLocaleString("en-US")
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)
}

const formatTime = microseconds => microseconds >= 1e6 ? `${(microseconds / 1e6).toFixed(3)} s` : `${(microseconds / 1e3).toFixed(3)} ms`
