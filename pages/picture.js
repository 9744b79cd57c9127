// Saves the chart of a card as a picture: Plotly's SVG with a title above and its source below, in the page's font.

const TOP = 34, BOTTOM = 24, SIDE = 10, SVG = "http://www.w3.org/2000/svg"

const chartOf = card => document.querySelector(`.st-key-card-${CSS.escape(card)} .js-plotly-plot`)

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.textContent = text
  return made
}

// Returns one line of text, in letters as large as fit.
function line(text, {y, width, size, weight = 400, color, family}) {
  const context = document.createElement("canvas").getContext("2d")
  context.font = `${weight} ${size}px ${family}`
  const fit = Math.min(1, (width - 2 * SIDE) / context.measureText(text).width)
  const style = `font-family: ${family.replaceAll('"', "'")}; font-size: ${(size * fit).toFixed(2)}px; font-weight: ${weight}; fill: ${color}`
  return element("text", {x: SIDE, y, style}, text)
}

// Returns the faces of the page's font as CSS, so that the picture looks the same where the font is not installed.
async function faces(family) {
  const wanted = family.split(",").map(name => name.trim().replaceAll(/["']/g, ""))
  const rules = [...document.styleSheets].flatMap(sheet => { try { return [...sheet.cssRules].map(rule => [rule, sheet.href]) } catch { return [] } })
  const found = rules.filter(([rule]) => rule instanceof CSSFontFaceRule && rule.style.getPropertyValue("font-style") !== "italic"
    && wanted.includes(rule.style.getPropertyValue("font-family").replaceAll(/["']/g, "")))
  const texts = await Promise.all(found.map(async ([rule, href]) => {
    const address = /url\("?([^")]+)"?\)/.exec(rule.style.getPropertyValue("src"))?.[1]
    const answer = address && await fetch(new URL(address, href ?? location.href))
    return answer?.ok ? rule.cssText.replace(address, await asDataUrl(await answer.blob())) : ""
  }))
  return texts.join("\n")
}

const asDataUrl = blob => new Promise((resolve, reject) => {
  const reader = new FileReader()
  reader.onload = () => resolve(reader.result)
  reader.onerror = () => reject(reader.error)
  reader.readAsDataURL(blob)
})

async function draw({card, title, alt, source}) {
  const chart = chartOf(card)
  if (!chart?._fullLayout || !window.Plotly) throw new Error("Show the chart first: there is none to save.")
  const {paper_bgcolor: page, font} = chart._fullLayout, [width, height] = [chart._fullLayout.width, chart._fullLayout.height].map(Math.round)
  const drawn = await window.Plotly.toImage(chart, {format: "svg", width, height, imageDataOnly: true, setBackground: page})
  const inner = new DOMParser().parseFromString(drawn, "image/svg+xml").documentElement
  // Text has the ink that the page gives it, and covers the lines behind it as there.
  const looks = new Map([...chart.querySelectorAll("text")].map(words => [words.style.fill, getComputedStyle(words)]))
  for (const words of inner.querySelectorAll("text")) {
    const {fill, stroke, strokeWidth, paintOrder} = looks.get(words.style.fill) ?? words.style
    Object.assign(words.style, {fill, stroke, strokeWidth, paintOrder})
  }
  const whole = height + TOP + BOTTOM, text = getComputedStyle(chart).color
  const outer = element("svg", {width, height: whole, viewBox: `0 0 ${width} ${whole}`, role: "img"})
  inner.setAttribute("y", TOP)
  outer.append(element("title", {}, title), element("desc", {}, alt), element("style", {}, await faces(font.family)),
    element("rect", {width, height: whole, style: `fill: ${page}`}),
    line(title, {y: 23, width, size: 16, weight: 600, color: text, family: font.family}), document.importNode(inner, true),
    line(source, {y: whole - 9, width, size: 10.5, color: font.color, family: font.family}))
  return {svg: new XMLSerializer().serializeToString(outer), width, height: whole}
}

async function asPng({svg, width, height}) {
  const image = new Image()
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`
  await image.decode()
  const canvas = Object.assign(document.createElement("canvas"), {width: 2 * width, height: 2 * height})
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height)
  return new Promise(resolve => canvas.toBlob(resolve, "image/png"))
}

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), {href: URL.createObjectURL(blob), download: name})
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

export default function ({data, parentElement}) {
  const output = parentElement.querySelector("output")
  const on = (kind, make) => {
    parentElement.querySelector(`.${kind}`).onclick = async () => {
      output.textContent = ""
      try { save(await make(await draw(data)), `${data.name}.${kind}`) } catch (error) { output.textContent = error.message }
    }
  }
  on("svg", ({svg}) => new Blob([svg], {type: "image/svg+xml"}))
  on("png", asPng)
}
