// Draws the charts with the Plotly in this file, in the colors of the reader's system.

const parseData = place => JSON.parse(place.querySelector('script[type="application/json"]').textContent)
const charts = [...document.querySelectorAll(".chart")].map(place => [place, parseData(place)])
for (const [place] of charts) place.replaceChildren()

function template() {
  const style = getComputedStyle(document.documentElement), read = name => style.getPropertyValue(name).trim()
  const [page, text, soft, line, grid, family] = ["--page", "--text", "--soft", "--line", "--grid", "--sans"].map(read)
  const axis = {gridcolor: grid, zerolinecolor: grid, tickcolor: grid, tickfont: {color: soft, size: 11.5}, title: {font: {color: soft, size: 13}}}
  return {layout: {
    colorway: JSON.parse(document.body.dataset.palette), font: {family, color: soft, size: 11.5}, paper_bgcolor: page, plot_bgcolor: page,
    margin: {pad: 7}, legend: {font: {color: text, size: 11.5}}, hoverlabel: {bgcolor: page, bordercolor: line, font: {color: text, family, size: 12}},
    xaxis: {...axis, showgrid: false, zeroline: false, title: {...axis.title, standoff: 18}}, yaxis: {...axis, title: {...axis.title, standoff: 20}},
  }}
}

function draw() {
  for (const [place, {figure, config}] of charts)
    Plotly.react(place, figure.data, {...figure.layout, template: template()}, {...config, responsive: true})
}

// A chart that is drawn while folded does not know its width.
for (const [place] of charts)
  place.closest("details")?.addEventListener("toggle", () => place.offsetWidth && Plotly.Plots.resize(place))

draw()
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw)
