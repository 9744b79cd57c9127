// Polls whether the file has changed since the page was drawn, and tells the server when it has.

const live = window.__stepscopeLive ??= {}

async function poll() {
  if (live.asking) return
  live.asking = true
  try {
    const {data, tell, since} = live
    const {rows, plan} = await (await fetch(data.address, {cache: "no-store"})).json()
    const isOld = data.again_s !== null && performance.now() - since > 1e3 * data.again_s
    if (rows !== data.rows || plan !== data.plan || isOld) tell("seen", `${rows} ${plan} ${Date.now()}`)
  } catch {
    // Without an answer it asks again later; Streamlit itself reports a lost server.
  } finally {
    live.asking = false
  }
}

// An older component may be removed after this one starts: each clears only its own timer.
export default function ({data, setStateValue}) {
  clearInterval(live.timer)
  const timer = setInterval(poll, 1e3 * data.every_s)
  Object.assign(live, {data, timer, tell: setStateValue, since: performance.now()})
  return () => clearInterval(timer)
}
