"""Grammars of outputs: their forms, compiler, state and cache, and the checks of JSON schemas."""
