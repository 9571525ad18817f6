"""Figures of arXiv 2607.01299 (HYPIC), measured again with this engine, theirs beside ours; a module an experiment."""
