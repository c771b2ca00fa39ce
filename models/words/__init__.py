"""Words as vectors: skip-gram with negative sampling, and ELMo, where a word's context counts."""
