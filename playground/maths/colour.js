// Colours of a canvas: from the paper to a hue, evenly in lightness, so that it reads without colours.

/** Numbers of a colour as getComputedStyle writes it. */
export const rgb = (text) => {
	const numbers = text.match(/[\d.]+/g).map(Number).slice(0, 3);
	return text.startsWith("color(") ? numbers.map((each) => each * 255) : numbers;
};

/** A colour between two. */
export const mixed = (from, to, share) => from.map((each, index) => Math.round(each + (to[index] - each) * share));

/** Colours by value: 0 to 1 from paper to accent; or -1 to 1 from contrast over paper to accent. */
export function scale(palette, isSigned = false) {
	const [paper, accent, contrast] = [palette.panel, palette.accent, palette.contrast].map(rgb);
	return (value) => mixed(paper, isSigned && value < 0 ? contrast : accent, Math.min(Math.abs(value) || 0, 1));
}

export const css = (colour, alpha = 1) => `rgb(${colour.join(" ")} / ${alpha})`;
