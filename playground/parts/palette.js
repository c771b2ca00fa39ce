// The colours of style.css, for canvases.

const NAMES = ["paper", "panel", "ink", "soft", "line", "edge", "accent", "contrast", "on-accent"];
/** The colours of the present scheme, by their names in style.css. @returns {Record<string, string>} */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
