// Copies a link as soon as it is shown, which a click has asked for, and says whether that worked.

const told = new WeakMap()

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text)
    return "Copied."
  } catch {
    return "Select and copy:"
  }
}

export default async function ({data, parentElement}) {
  const place = parentElement.querySelector("[role=status]")
  if (!place || told.get(place) === data) return
  told.set(place, data)
  place.textContent = await copy(data)
}
