// All screens: where they are in the navigation, which models they take, and what would make one.

export const CATALOGUE = [
	{ id: "home", title: "Home", group: "Start", tasks: [] },
	{ id: "generate", title: "Generate", group: "Text", tasks: ["text-generation"], fits: (model) => !model.has_source, needs: "a generative model", demo: "gpt" },
	{ id: "next-token", title: "Next token", group: "Text", tasks: ["text-generation"], fits: (model) => !model.has_source, needs: "a generative model", demo: "gpt" },
	{ id: "fill-mask", title: "Fill the mask", group: "Text", tasks: ["fill-mask"], needs: "a masked language model", demo: "bert" },
	{ id: "translate", title: "Sequence to sequence", group: "Text", tasks: ["text-generation"], fits: (model) => model.has_source, needs: "an encoder-decoder", demo: "dates" },
	{ id: "tokenizer", title: "Tokenizer", group: "Text", tasks: ["text-classification", "embedding", "text-generation", "fill-mask", "token-classification", "question-answering", "pair-scoring", "features", "attention"], fits: (model) => !model.symbols.length, needs: "a text model", demo: "gpt" },
	{ id: "attention", title: "Attention heads", group: "Attention", tasks: ["attention"], needs: "a model exported with its attention", demo: "attention" },
	{ id: "heads", title: "All heads", group: "Attention", tasks: ["attention"], needs: "a model exported with its attention", demo: "attention" },
	{ id: "inside", title: "Inside attention", group: "Attention", tasks: [] },
	{ id: "positions", title: "Positions", group: "Attention", tasks: [] },
	{ id: "classify", title: "Classify", group: "Understanding", tasks: ["text-classification"], needs: "a text classifier", demo: "bert" },
	{ id: "entities", title: "Entities", group: "Understanding", tasks: ["token-classification"], needs: "a token classifier", demo: "entities" },
	{ id: "answers", title: "Answers", group: "Understanding", tasks: ["question-answering"], needs: "a model for question answering", demo: "answers" },
	{ id: "rerank", title: "Rerank", group: "Understanding", tasks: ["pair-scoring"], needs: "a model that scores pairs", commands: "attendant import FOLDER checkpoints/reranker\nattendant export checkpoints/reranker --name reranker" },
	{ id: "similarity", title: "Similarity", group: "Vectors", tasks: ["embedding", "pair-scoring", "features"], needs: "an embedder", demo: "words" },
	{ id: "images", title: "Images", group: "Images", tasks: ["image-classification", "image-attention"], needs: "an image classifier", demo: "digits" },
	{ id: "models", title: "Models", group: "Server", tasks: [] },
	{ id: "batches", title: "Batches", group: "Server", tasks: [] },
	{ id: "api", title: "API", group: "Server", tasks: [] },
];
