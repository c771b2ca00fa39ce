// Calls of the public HTTP API, and nothing else: JSON, streams of events, the token.

import { EventReader } from "../maths/sse.js";

const TOKEN = "attendant-token", KEYS = "attendant-keys";
export const session = {
	get token() { return sessionStorage.getItem(TOKEN) ?? ""; },
	set token(value) { value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN); },
	/** Keys of restricted groups of calls, by their headers. */
	get keys() { return JSON.parse(sessionStorage.getItem(KEYS) ?? "{}"); },
	set keys(value) { sessionStorage.setItem(KEYS, JSON.stringify(value)); },
	/** Asks for a token after a 401, for the key of a header after a 403; gives whether there is another one. Set by the shell. */
	ask: async () => false,
};

/** What the server answered in place of what was called for. */
export class ApiError extends Error {
	constructor(status, message, param = null) {
		super(message);
		this.status = status;
		this.param = param;
	}
}

/** The address of a path of the API, beside the page. */
export const addressOf = (path) => new URL(path.replace(/^\//, ""), document.baseURI.replace(/#.*$/, "")).href;

/** The answer, whatever its form. Throws `ApiError`. @param [options] `asks`: for a token that is missing */
export async function request(path, { method, body, signal, headers = {}, asks = true } = {}) {
	const isRaw = body instanceof Uint8Array || body instanceof Blob || body instanceof FormData || body instanceof ArrayBuffer;
	const sent = body === undefined ? undefined : isRaw ? body : JSON.stringify(body);
	for (;;) {
		const own = { ...headers, ...session.keys, ...(session.token && { authorization: `Bearer ${session.token}` }), ...(body !== undefined && !isRaw && { "content-type": "application/json" }) };
		let response;
		try {
			response = await fetch(addressOf(path), { method: method ?? (sent === undefined ? "GET" : "POST"), body: sent, signal, headers: own, credentials: "omit" });
		} catch (error) {
			if (error.name === "AbortError") throw error;
			throw new ApiError(0, "The server does not answer.");
		}
		if (response.ok) return response;
		const error = errorOf(await response.text(), response.status);
		const header = response.status === 403 ? error.message.match(/expecting header '([^']+)'/)?.[1] : undefined;
		if (!asks || (response.status !== 401 && !header) || !(await session.ask(error.message, header))) throw error;
	}
}

/** The parsed answer, null of an empty one. */
export async function json(path, options) {
	return JSON.parse((await (await request(path, options)).text()) || "null");
}

/** The events of an answer, parsed; the stream ends when the caller leaves the loop. */
export async function* events(path, { headers, ...options }) {
	const response = await request(path, { ...options, headers: { ...headers, accept: "text/event-stream" } });
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader(), parser = new EventReader();
	try {
		for (;;) {
			const { value, done } = await reader.read();
			for (const data of done ? parser.push("\n\n") : parser.push(value)) {
				if (data === "[DONE]") return;
				const event = JSON.parse(data);
				if (event.error) throw errorOf(data, 0);
				yield event;
			}
			if (done) return;
		}
	} catch (error) {
		if (error instanceof TypeError) throw new ApiError(0, "The connection was lost in the middle of the answer.");
		throw error;
	} finally {
		reader.cancel().catch(() => {});
	}
}

function errorOf(text, status) {
	let error, field;
	try { ({ error, field } = JSON.parse(text)); } catch { /* no JSON: the text is the message */ }
	const { message = error, param = field } = typeof error === "object" && error ? error : {};
	// No screen cuts texts.
	return new ApiError(status, message?.replace(", or ask for truncation", "") ?? (text || `The server answered with status ${status}.`), param);
}
