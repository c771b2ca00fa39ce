// The course: lectures as paths through the screens, with a question and its answer on each.

import { h } from "./h.js";

/** Titles with their steps: an address, a question, an answer. */
export const LECTURES = [
	["Words as vectors", [
		["tokenizer", "Is a token a word?", "Not always: rare words are several tokens."],
		["inside?preset=measures", "Which measure grows when a vector gets longer?", "The dot product, scaled or not. The cosine is that of the angle alone."],
		["inside?preset=fruit", "Where does apple belong, beside cherry?", "Among the fruits. Beside phone it would go the other way."],
		["similarity", "Which two texts have no word in common and are alike?", "Look for the brightest field off the diagonal."],
	]],
	["Attention", [
		["inside?preset=apple", "Why is the weight of apple for itself 0.57 and not 1?", "Its cosine with itself is 1 and with orange 0.71. The softmax makes shares of both: e¹ / (e¹ + e⁰·⁷¹)."],
		["inside?preset=sentence", "What do and and an take, though they are like no other word?", "0.15 each, since e⁰ is 1. Trained queries and keys make such scores very negative."],
		["inside?preset=value", "What moves when W^V changes, and what stays?", "The sum moves, the weights stay: they come from q and k."],
		["translate", "Why is there a line of bright fields?", "Each written token looks at the place of the source that it is about."],
	]],
	["The Transformer", [
		["inside?preset=products", "What would the weights be without the division by 8?", "Type 1: 112 and 96 become 1 and 0. The softmax chooses one word."],
		["inside?preset=heads", "What does W^O do?", "It makes one vector of the heads' sums, which stand side by side."],
		["positions", "Why are there slow and fast waves?", "Fast ones tell neighbours apart, slow ones far places."],
		["attention", "Does the strongest line explain the answer?", "No: weights tell how much of a value is summed, not which part of it is used later."],
	]],
	["BERT", [
		["fill-mask", "Which words may stand under the mask?", "The model has read both sides of it."],
		["heads", "Which heads look at the token before?", "Choose that order: some heads have a habit that does not depend on the text."],
		["inside?preset=model", "Can a head's scores be told from its weights?", "But for a number that is the same in a whole row, which the softmax takes away."],
		["classify", "Which word decides?", "The one whose leaving out moves the label most."],
	]],
	["GPT and ViT", [
		["next-token", "What does a temperature of 0.5 do to the likeliest token?", "It gets likelier: the logits are divided by 0.5 before the softmax."],
		["generate", "Why is the same prompt continued in two ways?", "A token is drawn by its probability."],
		["positions?kind=rotary", "What stays when both positions move by one?", "Their product: it depends on the distance alone."],
		["images", "What are the words of an image?", "Patches: each is a vector, and attention goes from patch to patch."],
	]],
];

/** Opens a step; it is remembered until the tab is closed. */
export function go(lecture, step) {
	sessionStorage.setItem("course", JSON.stringify([lecture, step]));
	location.hash = `#/${LECTURES[lecture][1][step][0]}`;
}

/** The question of the present step, where it is about this screen. */
export function question(id) {
	const [lecture, step] = JSON.parse(sessionStorage.getItem("course")), [title, steps] = LECTURES[lecture], [address, asked, answer] = steps[step];
	if (address.split("?")[0] !== id) return null;
	const to = (words, ...place) => h("button", { onclick: () => go(...place) }, words), isLast = step === steps.length - 1;
	const element = h("aside.panel.stack", { label: "Course" }, h("h2", `${title}, step ${step + 1} of ${steps.length}`), h("p", asked), h("details", h("summary", "Answer"), h("p", answer)),
		h("div.row", step > 0 && to("Back", lecture, step - 1), !isLast ? to("Next", lecture, step + 1) : LECTURES[lecture + 1] && to("Next lecture", lecture + 1, 0), h("button.plain", { onclick: () => { sessionStorage.removeItem("course"); element.remove(); } }, "Leave the course")));
	return element;
}
