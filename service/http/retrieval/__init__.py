"""Reranking, scores, labels and pooled vectors, as Cohere, Jina, TEI and vLLM have them."""
