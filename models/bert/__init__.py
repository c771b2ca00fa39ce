"""BERT as published (Devlin et al. 2018): masked words, next sentences, and what fills a mask."""
