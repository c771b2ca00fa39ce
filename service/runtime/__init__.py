"""The base of the engines: sessions, tokenizers, images, processors, and prices of runs."""
