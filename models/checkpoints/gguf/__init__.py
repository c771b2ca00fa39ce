"""Files of GGUF, as llama.cpp's programs write them: decoders with their tokenizers in one file."""
