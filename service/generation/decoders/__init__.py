"""Generative graphs as the engine sees them: their inputs, memory and adapters."""
