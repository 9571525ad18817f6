"""Choosing a reuse policy for a model on the user's own prompts, and saying how sure the choice is."""
