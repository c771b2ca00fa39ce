// Answers: the part of a context that answers a question, the next best, and where none does.

import { percent, plural, visible } from "../maths/numbers.js";
import { nested } from "../maths/spans.js";
import { bars, fill, h } from "../parts/page.js";

export default function build(screen) {
	let latest = null, at = 0;
	const question = screen.text("text", { label: "Question", rows: 1, isMain: true, param: "question" }), context = screen.text("context", { label: "Context", rows: 9 });
	const top = screen.number("top_k", { label: "Answers", min: 1, max: 20, value: 5 }), longest = screen.number("max_answer_tokens", { label: "Tokens of an answer, at most", min: 1, max: 100, value: 30 });
	const threshold = screen.number("threshold", { label: "No answer from this probability on", min: 0, max: 1, step: 0.01, value: 0.5, onchange: () => show() });

	screen.action(async ({ model, call }) => {
		// The page decides about no answer, so that its threshold needs no call.
		const answer = await call("api/Answer", { model: model.name, question: question.value, context: context.value, top_k: top.value, max_answer_tokens: Math.min(longest.value, model.max_tokens), must_answer: true });
		[latest, at] = [{ ...answer, context: context.value }, 0];
		show();
	});

	function show() {
		if (!latest) return;
		const { answers, no_answer_score: none, windows, context: whole } = latest, isNone = !answers.length || none >= threshold.value, size = [...whole].length;
		const verdict = isNone ? ["No answer. ", h("span.soft", `The model gives ${percent(none)} to there being none.`)] : [visible(answers[0].text), " ", h("span.soft", `${percent(answers[0].score)}, characters ${answers[0].start} to ${answers[0].end}`)];
		const rows = [...answers.map(({ text, score }, index) => ({ label: text, value: score, isOn: index === at })), { label: "No answer", value: none, isSecond: true }];
		const pick = (_, index) => {
			if (index === answers.length) return;
			at = index;
			show();
			screen.result.querySelectorAll(".bars button")[index].focus();
			screen.result.querySelector("mark.on")?.scrollIntoView({ block: "nearest" });
		};
		const marked = (pieces) => pieces.map(({ text, span, inner }) => (span ? h("mark", { class: `answer${span === answers[at] ? " on" : ""}`, title: `${answers.indexOf(span) + 1}: ${percent(span.score)}` }, marked(inner)) : visible(text)));
		const part = ({ start, end }) => ({ "--from": start / size, "--size": (end - start) / size });
		const strip = windows.length > 1 && h("figure.stack", h("ol.windows", windows.map((window, index) => h("li", { style: part(window), label: `Window ${index + 1}: characters ${window.start} to ${window.end}` },
			answers.filter(({ start, end }) => start >= window.start && end <= window.end).map((each) => h("i", { class: each === answers[at] ? "on" : null, style: { "--from": (each.start - window.start) / (window.end - window.start) } }))))),
		h("figcaption", `The context was read in ${plural(windows.length, "window")} that overlap; a line stands for an answer.`));
		fill(screen.result, h("p.large", { role: "status" }, verdict), bars(rows, { most: 1, label: "Answers", onpick: pick }), strip, h("div.tokens.panel.reading", marked(nested(whole, answers))));
	}
}
