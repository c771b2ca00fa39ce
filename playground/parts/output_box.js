// One box for a prompt, which can be edited, and the tokens that go on from it, which can be chosen.

import { fault } from "./controls.js";
import { fill, h } from "./h.js";

const END = "\u2063"; // invisible, behind what is inserted: a browser puts no cursor behind a line break that ends the text

/** A control named "text" whose value is the prompt. `show` puts elements behind it; they are dimmed where they are of another prompt than is written. */
export function outputBox({ onchange }) {
	const wrong = h("span.error", { role: "alert", hidden: true, id: "prompt-error" }), behind = h("span.output");
	const prompt = h("span.prompt", { role: "textbox", "aria-multiline": "true", spellcheck: false });
	try { prompt.contentEditable = "plaintext-only"; } catch { prompt.contentEditable = "true"; }
	const box = h("div.panel.document.tokens", { onclick: (event) => event.target === box && toEnd() }, prompt, behind);
	const element = h("div.field", box, wrong);
	const type = (text) => {
		const range = getSelection().getRangeAt(0), end = new Text(END);
		range.deleteContents();
		range.insertNode(end);
		range.insertNode(new Text(text));
		range.setStartBefore(end);
		range.collapse(true);
		prompt.dispatchEvent(new Event("input", { bubbles: true }));
	};
	const toEnd = () => {
		prompt.focus();
		getSelection().selectAllChildren(prompt);
		getSelection().collapseToEnd();
	};
	// Markup of what is pasted is left out by every browser then, and a line break is a character.
	prompt.addEventListener("paste", (event) => {
		event.preventDefault();
		type(event.clipboardData.getData("text/plain").replace(/\r\n?/g, "\n"));
	});
	prompt.addEventListener("keydown", (event) => {
		if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
		event.preventDefault();
		type("\n");
	});
	const self = {
		name: "text", param: "text", initial: "", element, box,
		get value() {
			const nodes = [...prompt.childNodes];
			return nodes.length === 1 && nodes[0].nodeName === "BR" ? "" : nodes.map((node) => (node.nodeName === "BR" ? "\n" : node.textContent)).join("").replaceAll(END, "");
		},
		set value(text) {
			if (text !== self.value) prompt.textContent = text;
			prompt.classList.toggle("none", !self.value);
		},
		error: fault(element, prompt, wrong),
		focus: toEnd,
		show: (...elements) => fill(behind, ...elements),
		call(label, placeholder) { [prompt.ariaLabel, prompt.dataset.placeholder] = [label, placeholder]; },
		set isStale(value) { behind.classList.toggle("stale", value); },
	};
	prompt.addEventListener("input", () => {
		prompt.classList.toggle("none", !self.value);
		self.error("");
		self.onchange?.(self.value);
		onchange();
	});
	self.value = "";
	return self;
}
