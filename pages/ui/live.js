// Asks whether the file is still the one that the page was drawn from, and tells the server when it is not.

const live = window.__stepscopeLive ??= {}

async function look() {
  if (live.asking) return
  live.asking = true
  try {
    const {data, tell, since} = live
    const {rows, plan} = await (await fetch(data.address, {cache: "no-store"})).json()
    const isOld = data.again_s !== null && performance.now() - since > 1e3 * data.again_s
    if (rows !== data.rows || plan !== data.plan || isOld) tell("seen", `${rows} ${plan} ${Date.now()}`)
  } catch {
    // No answer: the next one may come, and Streamlit says itself that its server is gone.
  } finally {
    live.asking = false
  }
}

// The one before may be taken away after this one has come: each stops only what it has started.
export default function ({data, setStateValue}) {
  clearInterval(live.timer)
  const timer = setInterval(look, 1e3 * data.every_s)
  Object.assign(live, {data, timer, tell: setStateValue, since: performance.now()})
  return () => clearInterval(timer)
}
