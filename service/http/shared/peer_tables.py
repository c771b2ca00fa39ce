"""The fields of OpenAI, vLLM, SGLang, llama.cpp, Ollama, TGI, TEI, Jina, Voyage and Cohere.

One table for each kind of request; docs/reference/peer-fields.md has it for readers, and
tests/service/http/shared/test_peer_fields.py sends every field to every route of its kind.
"""

from service.http.shared.peer_fields import PeerField, Refusals, done, harmless, refused

OFF = (False,)
NO_MEDIA = "the server takes no images, sound or video"
NO_PLACE = "it says where or when a request is computed, and not what"
NO_TRACE = "it names a request or its sender, or asks for more about how it was computed"
ONE_ENGINE = "the answers have no place for it"
OWN_SAMPLING = "top_p, top_k and min_p choose among likely tokens"
OTHER_MODEL = "adapters are models here, and are named as such"
# The most tokens of thoughts, by the names of vLLM, Qwen, llama.cpp and others; -1 is no bound.
BUDGETS = (
    *("thinking_token_budget", "thinking_budget", "thinking_budget_tokens"),
    *("reasoning_budget_tokens", "reasoning_budget", "max_thinking_tokens"),
)

# Of chats and completions.
GENERATION: tuple[PeerField, ...] = (
    *done("model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "seed", "stop"),
    *done("stop_token_ids", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *done("logit_bias", "allowed_token_ids", "min_tokens", "ignore_eos", "stream"),
    *done("stream_options", "use_beam_search", "length_penalty", "logprobs", "priority"),
    *done("cache_salt", "response_format", "structured_outputs", "guided_json", "guided_regex"),
    *done("guided_choice", "guided_grammar", "guided_json_object", "guided_whitespace_pattern"),
    *done("json_schema", "regex", "grammar", "include_stop_str_in_output", "no_stop_trim"),
    *done("bad_words", "truncate_prompt_tokens", "truncation_side", "skip_special_tokens"),
    *done("return_token_ids", "return_prompt_token_ids", "return_tokens_as_token_ids"),
    *done("n_predict", "n_cmpl", "repeat_penalty", "prompt_logprobs", "echo"),
    *refused("forms are llguidance's Lark, JSON schemas and expressions", "ebnf"),
    *refused(
        "a form holds from the first token on",
        *("grammar_triggers", "preserved_tokens"),
        neutral=([],),
    ),
    *refused("a form holds from the first token on", "grammar_lazy", neutral=OFF),
    *refused("stop texts are plain", "stop_regex", neutral=([], "")),
    *refused("logprobs are of the likeliest tokens", "logprob_token_ids", neutral=([],)),
    *refused("logprobs and top_logprobs are what has them", "n_probs", neutral=(0,)),
    *refused(
        "log probabilities are the model's own",
        *("post_sampling_probs", "sampling_logprobs_mode"),
        neutral=OFF,
    ),
    *refused("prompts are texts, token ids or messages", "prompt_embeds", "input_embeds"),
    *refused("/tokenize and /detokenize tell the prompt", *("return_prompt_text",), neutral=OFF),
    *refused("a beam search ends once nothing can be better", "early_stopping", neutral=OFF),
    *refused("outputs are not marked", "watermark", "watermarking", neutral=OFF),
    *refused("no_repeat_ngram_size of the typed API is what there is", "repetition_detection"),
    *refused(
        "the server has no plug-ins",
        *("vllm_xargs", "kv_transfer_params", "ec_transfer_params", "custom_logit_processor"),
        *("custom_params", "session_params"),
        neutral=({},),
    ),
    *refused(OTHER_MODEL, "lora_path", "lora", "adapter_id", neutral=([],)),
    *refused(
        ONE_ENGINE,
        *("return_hidden_states", "return_routed_experts", "return_meta_info"),
        *("return_sampling_mask", "return_flat_raw_output_top_logprobs"),
        *("return_flat_raw_output_top_logprobs_b64", "return_input_ids_in_sglext"),
        "return_output_ids_in_sglext",
        neutral=OFF,
    ),
    *refused(OWN_SAMPLING, "typical_p", "dynatemp_exponent", neutral=(1,)),
    *refused(OWN_SAMPLING, "top_n_sigma", "adaptive_target", neutral=(-1,)),
    *refused(
        OWN_SAMPLING,
        *("xtc_probability", "dynatemp_range", "mirostat", "min_keep"),
        neutral=(0,),
    ),
    *refused("n-grams are not penalised by it", "dry_multiplier", neutral=(0,)),
    *refused("penalties are of the whole text", "repeat_last_n", neutral=(-1,)),
    *refused("the order of sampling is the server's own", "samplers", neutral=([],)),
    *refused("outputs are bounded by their tokens", "t_max_predict_ms", neutral=(-1,)),
    *refused("lines have no least indentation", "n_indent", neutral=(0,)),
    *refused("answers have all of their fields", "response_fields", neutral=([],)),
    *refused(
        "the model continues texts, and fills no gap",
        *("input_prefix", "input_suffix", "input_extra"),
        neutral=("", []),
    ),
    *harmless(
        "only with a value of another field, which is refused",
        *("xtc_threshold", "mirostat_tau", "mirostat_eta", "adaptive_decay", "dry_base"),
        *("dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
    ),
    *harmless(
        "a space between special tokens is what no tokenizer here has",
        "spaces_between_special_tokens",
    ),
    *harmless("there is one way to hold to a form", "guided_decoding_backend"),
    *harmless(
        NO_TRACE,
        *("user", "metadata", "request_id", "rid", "session_id", "custom_labels", "store"),
        *("safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
        *("prompt_cache_options", "prediction", "return_cached_tokens_details", "verbose"),
        *("return_spec_tokens_details", "return_token_offsets", "timings_per_token"),
        *("return_tokens", "return_progress", "_debug_render_only"),
    ),
    *harmless(
        NO_PLACE,
        *("routed_experts_prompt_start", "routed_experts_start_len", "stream_interval"),
        *("extra_key", "routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank"),
        *("bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_prompt", "n_cache_reuse"),
        *("id_slot", "n_keep", "n_discard", "backend_sampling", "sse_ping_interval"),
        *("keep_alive", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread"),
    ),
    *harmless(
        NO_MEDIA,
        *("media_io_kwargs", "mm_processor_kwargs", "return_mm_kwargs", "images_config"),
        *("video_config", "max_dynamic_patch", "min_dynamic_patch", "use_audio_in_video"),
    ),
)
CHATS: tuple[PeerField, ...] = (
    *GENERATION,
    *done("messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice"),
    *done("parallel_tool_calls", "functions", "function_call", "modalities", "audio"),
    *done("web_search_options", "chat_template", "chat_template_kwargs"),
    *done("add_generation_prompt", "continue_final_message", "documents", "reasoning_effort"),
    *done("reasoning", "thinking", "include_reasoning", "separate_reasoning"),
    *done("reasoning_format", *BUDGETS),
    *refused("the chat template writes all that there are", "add_special_tokens", neutral=OFF),
    *refused("messages are the prompt", "input_ids", "prompt", "suffix"),
    *refused(
        "the model ends its reasoning as it does",
        *("reasoning_budget_message", "reasoning_budget_start_tag", "reasoning_budget_end_tags"),
        neutral=("", []),
    ),
    *refused("the model ends its reasoning as it does", "reasoning_control", neutral=OFF),
    *refused("calls are read from the text", "parse_tool_calls", neutral=(True,)),
    *refused("the chat template is the model's own", "tool_prompt", "guideline", neutral=("",)),
    *refused(
        "the chat template is the model's own",
        "chat_format",
        "chat_parser",
        "generation_prompt",
        neutral=("",),
    ),
    *refused("the model writes as it does", "verbosity", neutral=("medium",)),
    *refused("the server has no model for it", "moderation"),
    *refused("the model does what messages say", "task"),
    *harmless("reasoning is streamed as text is", "stream_reasoning"),
)
COMPLETIONS: tuple[PeerField, ...] = (
    *GENERATION,
    *done("prompt", "best_of", "suffix", "add_special_tokens"),
    *refused("thoughts are told apart in /v1/chat/completions", *BUDGETS, neutral=(-1,)),
)
# Of Anthropic's API.
COUNTED_MESSAGES: tuple[PeerField, ...] = (
    *done("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"),
    *refused("nothing is kept from one request to the next", "container"),
    *refused("the server reaches no network", "mcp_servers", neutral=([],)),
    *harmless(
        NO_TRACE,
        *("metadata", "service_tier", "inference_geo", "betas", "cache_control"),
        "context_management",
    ),
)
MESSAGES: tuple[PeerField, ...] = (
    *COUNTED_MESSAGES,
    *done("max_tokens", "stop_sequences", "temperature", "top_p", "top_k", "stream"),
)
# Of OpenAI's newer API.
RESPONSES: tuple[PeerField, ...] = (
    *done("model", "input", "instructions", "max_output_tokens", "stream", "temperature", "top_p"),
    *done("tools", "tool_choice", "parallel_tool_calls", "top_logprobs", "text", "reasoning"),
    *done("include", "truncation", "metadata", "top_k", "min_p", "seed", "stop"),
    *done("repetition_penalty", "frequency_penalty", "presence_penalty", "priority"),
    *done("cache_salt", "chat_template_kwargs"),
    *refused(
        "nothing is kept from one request to the next: send the items themselves in input",
        *("previous_response_id", "conversation", "prompt", "previous_input_messages"),
        *("previous_response", "context_management"),
        neutral=([],),
    ),
    *refused("answers are given at once", "background", neutral=OFF),
    *refused("the answer has items alone", "enable_response_messages", neutral=OFF),
    *refused("the server has no model for it", "moderation"),
    *harmless(
        NO_TRACE,
        *("store", "user", "safety_identifier", "service_tier", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "client_metadata", "max_tool_calls"),
        *("stream_options", "request_id"),
    ),
)
# Of vectors, scores and classes.
READING: tuple[PeerField, ...] = (
    *done("model"),
    *refused("a text that is cut loses its end", "truncation_side", neutral=("right",)),
    *refused("texts are padded for the network alone", "padding", neutral=(*OFF, "do_not_pad")),
    *refused("the model's tokenizer adds its own", "add_special_tokens", neutral=(True,)),
    *refused(OTHER_MODEL, "lora_path"),
    *harmless(
        NO_TRACE,
        *("user", "request_id", "rid", "priority", "cache_salt", "mm_processor_kwargs"),
    ),
)
EMBEDDINGS: tuple[PeerField, ...] = (
    *READING,
    *done("input", "dimensions", "encoding_format", "truncate_prompt_tokens", "prompt_name"),
    *done("input_type", "embedding_type", "task", "truncate", "truncation", "output_dimension"),
    *done("output_dtype", "use_activation", "normalize", "normalized"),
    *refused("numbers in base64 are float32", "embed_dtype", neutral=("float32",)),
    *refused("numbers in base64 are little-endian", "endianness", neutral=("native", "little")),
    *refused("each text is embedded by itself", "late_chunking", neutral=OFF),
    *refused("input has the texts", "messages", "chat_template", "chat_template_kwargs"),
    *refused("input has the texts", "embed_overrides", "embed_override_token_id"),
)
POOLING: tuple[PeerField, ...] = (
    *READING,
    *done("input", "task", "encoding_format", "truncate_prompt_tokens"),
    *refused("the model's vectors have one width", "dimensions"),
    *refused("numbers are float32", "embed_dtype", neutral=("float32",)),
    *refused("numbers are float32", "endianness", neutral=("native", "little")),
    *refused("vectors are as the model was exported", "use_activation", "normalize"),
    *refused("input has the texts", "messages", "data"),
)
SCORES: tuple[PeerField, ...] = (
    *READING,
    *done("queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"),
    *done("truncate_prompt_tokens", "use_activation"),
    *refused(
        "scores are those of a model that scores pairs, or cosines",
        *("query", "label_token_ids", "score_extraction_token"),
    ),
    *refused(
        "scores are those of a model that scores pairs, or cosines",
        "item_first",
        "apply_softmax",
        "return_token_logprobs",
        "return_pooled_hidden_states",
        neutral=OFF,
    ),
    *refused("texts have the words", "query_embed_overrides", "item_embed_overrides"),
    *refused("the model's own template is used", "instruction", "instruct", "chat_template"),
)
CLASSES: tuple[PeerField, ...] = (
    *READING,
    *done("input", "truncate_prompt_tokens", "use_activation"),
    *refused("input has the texts", "messages"),
)
RERANKING: tuple[PeerField, ...] = (
    *READING,
    *done("query", "documents", "texts", "top_n", "return_documents", "return_text"),
    *done("raw_scores", "use_activation", "truncate", "truncation_direction"),
    *done("truncate_prompt_tokens", "max_tokens_per_doc", "max_chunks_per_doc", "rank_fields"),
    *refused("the model's own template is used", "instruct", "instruction", "chat_template"),
    *harmless("documents are text", "return_embeddings"),
)
RANKING: tuple[PeerField, ...] = (*READING, *done("query", "passages", "truncate"))
PREDICTION: tuple[PeerField, ...] = (
    *READING,
    *done("inputs", "raw_scores", "truncate", "truncation_direction"),
)
VECTORS: tuple[PeerField, ...] = (
    *READING,
    *done("inputs", "normalize", "truncate", "truncation_direction", "prompt_name", "dimensions"),
)
SPARSE: tuple[PeerField, ...] = (
    *READING,
    *done("inputs", "truncate", "truncation_direction", "prompt_name", "top_k"),
)
COHERE: tuple[PeerField, ...] = (
    *READING,
    *done("texts", "input_type", "embedding_types", "output_dimension", "truncate", "max_tokens"),
    *refused(NO_MEDIA, "images", "inputs", neutral=([],)),
)
TOKENS: tuple[PeerField, ...] = (
    *done("model", "prompt", "messages", "add_special_tokens", "return_token_strs", "tools"),
    *done("add_generation_prompt", "continue_final_message", "chat_template"),
    *done("chat_template_kwargs", "reasoning_effort", "documents"),
    *harmless("calls are free to be made, or not, with the same prompt", "tool_choice"),
    *harmless(NO_TRACE, "user", "request_id", "mm_processor_kwargs"),
)
TEXTS: tuple[PeerField, ...] = (
    *done("model", "tokens"),
    *refused("special tokens are spelled", "skip_special_tokens", neutral=OFF),
    *harmless(NO_TRACE, "user", "request_id"),
)
# Of `parameters` at the address of a model that writes.
TGI: tuple[PeerField, ...] = (
    *done("best_of", "top_n_tokens", "decoder_input_details", "details", "grammar", "do_sample"),
    *done("return_full_text", "repetition_penalty", "frequency_penalty", "max_new_tokens"),
    *done("temperature", "top_k", "top_p", "seed", "stop", "num_beams", "num_return_sequences"),
    *done("length_penalty", "no_repeat_ngram_size", "adapter_id", "truncate", "typical_p"),
    *done("watermark", "src_lang", "tgt_lang"),
)
TABLES: dict[str, tuple[PeerField, ...]] = {
    "chats": CHATS,
    "messages": MESSAGES,
    "responses": RESPONSES,
    "counted messages": COUNTED_MESSAGES,
    "completions": COMPLETIONS,
    "embeddings": EMBEDDINGS,
    "pooling": POOLING,
    "scores": SCORES,
    "classes": CLASSES,
    "reranking": RERANKING,
    "ranking": RANKING,
    "prediction": PREDICTION,
    "vectors": VECTORS,
    "sparse vectors": SPARSE,
    "Cohere's vectors": COHERE,
    "tokens": TOKENS,
    "texts of tokens": TEXTS,
    "generation parameters": TGI,
}
REFUSALS = {kind: Refusals(fields) for kind, fields in TABLES.items()}
