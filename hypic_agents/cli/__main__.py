"""``python -m hypic_agents.cli``: the command line without the installed script."""

from hypic_agents.cli import main

main()
