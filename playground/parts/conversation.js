// Messages before the one that is written, and the prompt that a chat template makes of them.

import { json } from "../api/client.js";
import { texts, tokenOf } from "../maths/branches.js";
import { visible } from "../maths/visible.js";
import { fill, h } from "./h.js";

/** The prompt's tokens as the model gets them. */
async function promptTokens(call, model, conversation) {
	const answer = await call("api/GenerateUnary", { model, conversation, sampling_params: { max_tokens: 0, prompt_logprobs: 0 } });
	return answer.prompt_logprobs.map(tokenOf);
}

/** A switch between a text and a chat, and the messages so far; `before(text)` gives the conversation up to this message, null of no chat. */
export function conversation(screen, into, onchange) {
	let messages = [];
	const box = h("div.stack"), list = h("ol.stack", { label: "Messages" }), shown = h("pre.code", { tabIndex: 0, label: "Rendered prompt" });
	const mode = screen.choice("mode", { label: "Kind", options: [["text", "Text"], ["chat", "Chat"]], value: "text", into, onchange: () => self.update() });
	into.append(box);
	const system = screen.text("system", { label: "System message", rows: 2, into: box }), details = h("details", { ontoggle: () => self.update() }, h("summary", "Rendered prompt"), shown);
	system.onchange = ((before) => (value) => { before(value); onchange(); })(system.onchange);
	const thoughts = h("div.fields");
	const thinking = screen.choice("thinking", { label: "Thinking", options: [["", "As the model does"], ["true", "On"], ["false", "Off"]], value: "", into: thoughts, onchange: () => self.update() });
	const budget = screen.number("max_reasoning_tokens", { label: "Tokens of thoughts at most", isBare: true, min: 0, into: thoughts });
	box.append(thoughts, list, details);
	const render = async () => texts(await promptTokens((path, body) => json(path, { body }), screen.model.name, self.before(screen.main.value))).join("");
	const self = {
		name: "messages", initial: [], get value() { return messages; },
		set value(value) {
			messages = value;
			self.update();
		},
		tokens: promptTokens,
		get isChat() { return mode.value === "chat" && !!screen.model?.has_chat_template; },
		get isThinking() { return self.isChat && !!screen.model.reasoning_form; },
		before: (text) => (self.isChat ? {
			messages: [...(system.value ? [{ role: "system", content: system.value }] : []), ...messages, { role: "user", content: text }],
			// Templates call it one or the other.
			...(self.isThinking && thinking.value && { template_variables: JSON.stringify({ enable_thinking: thinking.value === "true", thinking: thinking.value === "true" }) }),
		} : null),
		fields: () => (self.isThinking && budget.value !== undefined ? { max_reasoning_tokens: budget.value } : {}),
		update() {
			mode.element.hidden = !screen.model?.has_chat_template;
			box.hidden = !self.isChat;
			thoughts.hidden = !self.isThinking;
			fill(list, messages.map(({ role, content }) => h("li", { class: role }, h("h3", role === "user" ? "You" : "Model"), h("p.tokens", visible(content)))));
			if (details.open) render().then((text) => { shown.textContent = visible(text); }, (error) => { shown.textContent = error.message; });
			onchange();
		},
	};
	return self;
}
