// Text of models and callers, with what could not be seen, or would turn the text around, as marks.

const NAMES = { "\t": "→", "\n": "↵", "\r": "␍", "\u00a0": "⍽", "\u200b": "[ZWSP]", "\u200c": "[ZWNJ]", "\u200d": "\u200d", "\ufeff": "[BOM]",
	"\u200e": "[LRM]", "\u200f": "[RLM]", "\u061c": "[ALM]", "\u202a": "[LRE]", "\u202b": "[RLE]", "\u202c": "[PDF]", "\u202d": "[LRO]", "\u202e": "[RLO]",
	"\u2066": "[LRI]", "\u2067": "[RLI]", "\u2068": "[FSI]", "\u2069": "[PDI]", "\u2028": "[LS]", "\u2029": "[PS]" };
// Control characters, marks of direction, and halves of astral characters.
const UNSEEN = /[\u0000-\u001f\u007f-\u00a0\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The text with marks. A token: spaces at its ends and line breaks are marks too; otherwise line breaks and tabs stay. */
export function visible(text, isToken = false) {
	const shown = text.replace(UNSEEN, (each) => (!isToken && "\n\t".includes(each) ? each
		: NAMES[each] ?? (each < " " ? String.fromCharCode(0x2400 + each.charCodeAt(0)) : `[U+${each.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`)));
	return isToken ? shown.replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length)) : shown;
}
