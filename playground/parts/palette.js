// The colours of style.css, for canvases.

import { h } from "./h.js";

const NAMES = ["paper", "panel", "ink", "soft", "line", "edge", "accent", "contrast", "on-accent"], probe = h("i", { hidden: true });
/** The colours of the present scheme, by their names in style.css. */
export function palette() {
	if (!probe.isConnected) document.body.append(probe);
	return Object.fromEntries(NAMES.map((name) => {
		probe.style.setProperty("color", `var(--${name})`);
		return [name, getComputedStyle(probe).color];
	}));
}
