"""What a calibration is asked for: its defaults, and what is refused before anything is computed. No torch."""

from __future__ import annotations

from typing import Final

from hypic_agents.errors import InvalidInput

BUDGET: Final = 0.5
CONFIDENCE: Final = 0.95
MAX_TOKENS: Final = 64


def check_request(*, budget: float, confidence: float, splits: int, prompts: int) -> None:
    """Refuse what cannot be calibrated.

    Raises:
        InvalidInput: a budget, confidence or number of splits out of range, or too few prompts.
    """
    if not 0 <= budget <= 100:
        raise InvalidInput(f"gap budget {budget}: use points between 0 and 100")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence {confidence}: use a share above 0 and below 1")
    if splits < 0:
        raise InvalidInput(f"splits={splits}: use 0 or more")
    if prompts < (2 if splits else 1):
        raise InvalidInput(f"{prompts} prompts: give at least {2 if splits else 1}")
