// Text that is read on any colour.

/** Black or white, of which one has a contrast of 4.5 at least. */
export const legible = (below) => (below.reduce((light, value, index) => light + [0.2126, 0.7152, 0.0722][index] * (value / 255) ** 2.2, 0) > 0.179 ? "#000" : "#fff");
