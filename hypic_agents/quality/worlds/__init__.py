"""A synthetic plain-English world: short documents of the kinds agents meet, and questions with exact answers."""

from hypic_agents.quality.worlds.episode import TASKS, Episode, make_episode, render_messages
from hypic_agents.quality.worlds.names import is_heldout
from hypic_agents.quality.worlds.questions import Question

__all__ = ["TASKS", "Episode", "Question", "is_heldout", "make_episode", "render_messages"]
