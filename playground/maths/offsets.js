// Offsets of the API count code points; strings of JavaScript count halves of astral characters.

/** The index in UTF-16 of a code point. @param offset in code points */
export function toUtf16(text, offset) {
	let index = 0;
	for (; offset > 0 && index < text.length; offset--) index += text.codePointAt(index) > 0xffff ? 2 : 1;
	return index;
}

/** The number of code points before an index. @param index in UTF-16 */
export const fromUtf16 = (text, index) => [...text.slice(0, index)].length;

/** A part of a text, by code points. */
export const slice = (text, start, end = Infinity) => text.slice(toUtf16(text, start), end === Infinity ? undefined : toUtf16(text, end));
