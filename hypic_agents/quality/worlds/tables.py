"""All attributes by kind of entity; files have theirs in ``code``."""

from __future__ import annotations

from typing import Final

from hypic_agents.quality.worlds import people, things
from hypic_agents.quality.worlds.schema import Attribute

ATTRIBUTES: Final[dict[str, tuple[Attribute, ...]]] = {
    "person": people.PERSON,
    "user": people.USER,
    "city": people.CITY,
    "company": people.COMPANY,
    "product": things.PRODUCT,
    "policy": things.POLICY,
    "project": things.PROJECT,
    "service": things.SERVICE,
    "shipment": things.SHIPMENT,
}
