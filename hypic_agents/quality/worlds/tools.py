"""Made-up tools: their specs, requests that need them, calls, and results to answer from."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any, Final

from hypic_agents.quality.worlds.names import Names
from hypic_agents.quality.worlds.schema import new_value

# noun, parameter, sort of its value, preposition, fields of a result
_LOOKUP_NOUNS: Final[tuple[tuple[str, str, str, str, tuple[tuple[str, str], ...]], ...]] = (
    ("weather", "city", "city", "in", (("temperature", "#degrees"), ("wind", "#knots"))),
    ("order", "order_id", "code", "of order", (("courier", "word"), ("status", "word"), ("cost", "#crowns"))),
    ("invoice", "invoice_id", "code", "of invoice", (("sum", "#crowns"), ("payer", "person"))),
    ("flight", "flight", "code", "of flight", (("gate", "code"), ("delay", "#minutes"), ("pilot", "person"))),
    ("train", "train", "code", "of train", (("platform", "#"), ("driver", "person"))),
    ("hotel", "city", "city", "of the hotel in", (("rating", "#"), ("landlord", "person"))),
    ("stock", "company", "company", "of the share of", (("quote", "#crowns"), ("trend", "word"))),
    ("account", "account_id", "code", "of account", (("balance", "#crowns"), ("holder", "person"))),
    ("book", "title", "word", "of the book", (("author", "person"), ("length", "#pages"))),
    ("recipe", "dish", "word", "of the dish", (("cooking time", "#minutes"), ("main herb", "word"))),
    ("song", "title", "word", "of the song", (("singer", "person"), ("duration", "#seconds"))),
    ("parcel", "parcel_id", "code", "of parcel", (("depot", "word"), ("mass", "#grams"))),
    ("traffic", "road", "code", "on road", (("speed", "#kilometres"), ("jam", "#minutes"))),
    ("station", "city", "city", "of the station in", (("opening hour", "#"), ("manager", "person"))),
    ("ticket", "ticket_id", "code", "of ticket", (("priority", "#"), ("assignee", "person"))),
    ("exchange_rate", "currency", "word", "of the currency", (("rate", "#"), ("issuer", "word"))),
)
_LOOKUP_VERBS: Final = ("get", "find", "check", "look_up", "fetch", "show", "read", "query")
# verb: words that a request may use
_ACTION_VERBS: Final = {
    "create": ("create", "set up"), "book": ("book", "reserve"), "cancel": ("cancel", "call off"),
    "delete": ("delete", "erase"), "send": ("send", "mail"), "open": ("open",), "close": ("close", "shut"),
    "start": ("start", "launch"), "stop": ("stop", "halt"), "print": ("print",), "archive": ("archive",),
    "lock": ("lock",), "rename": ("rename",), "update": ("update", "refresh"), "copy": ("copy", "duplicate"),
    "move": ("move",), "share": ("share",), "approve": ("approve", "accept"),
}  # fmt: skip
# noun, parameter, sort of its value, verbs that go with it
_ACTION_NOUNS: Final = tuple(
    (noun, name, value, tuple(verbs.split()))
    for noun, name, value, verbs in (
        ("reminder", "name", "word", "create cancel delete rename update move share"),
        ("alarm", "name", "word", "create cancel delete start stop rename move"),
        ("table", "restaurant", "word", "book cancel move"),
        ("room", "name", "word", "book cancel open close lock rename"),
        ("taxi", "city", "city", "book cancel send stop"),
        ("meeting", "person", "person", "create book cancel start move approve"),
        ("message", "recipient", "person", "create send delete archive copy print"),
        ("playlist", "title", "word", "create delete start stop rename share copy"),
        ("door", "door_id", "code", "open close lock"),
        ("report", "report_id", "code", "create send delete open print archive update copy share approve"),
        ("backup", "server", "word", "create start stop delete copy move"),
        ("event", "city", "city", "create cancel move share approve update"),
        ("contract", "company", "company", "create send cancel print archive copy approve"),
        ("folder", "folder", "word", "create delete open lock rename copy move share archive"),
        ("task", "task_id", "code", "create cancel delete start stop close update approve"),
        ("survey", "company", "company", "create send start stop close delete print"),
    )
)
# parameter, JSON type, sort of value, how a request says it
_EXTRAS: Final = (
    ("priority", "integer", "#", "with priority {x}"), ("code", "string", "code", "with the code {x}"),
    ("size", "integer", "#", "with size {x}"), ("note", "string", "word", "with the note {x}"),
    ("copy_to", "string", "person", "with a copy to {x}"), ("minutes", "integer", "#", "in {x} minutes"),
)  # fmt: skip
_LOOKUP_EXTRAS: Final = (
    ("day", "integer", "#", "on day {x}"), ("unit", "string", "word", "in the unit {x}"),
    ("page", "integer", "#", "on page {x}"), ("reader", "string", "person", "for {x}"),
)  # fmt: skip
_ACTION_FORMS: Final = (
    "{verb} the {noun} {x}{extra}.", "Please {verb} the {noun} {x}{extra}.", "Can you {verb} the {noun} {x}{extra}?",
    "I want you to {verb} the {noun} {x}{extra}.",
)  # fmt: skip
_JOINS: Final = {"city": "in ", "meeting": "with ", "message": "to ", "company": "for "}
_LOOKUP_FORMS: Final = (
    "What is the {field} {of} {x}{extra}?", "Tell me the {field} {of} {x}{extra}.",
    "I need the {field} {of} {x}{extra}.", "Please find out the {field} {of} {x}{extra}.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool: its name, JSON type, the sort of value, and how a request says it."""

    name: str
    json_type: str
    value: str
    phrase: str = "{x}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, and the words that a request for it uses. ``fields`` is empty for a tool that only acts."""

    name: str
    noun: str
    description: str
    parameters: tuple[Parameter, ...]
    forms: tuple[str, ...]
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> dict[str, Any]:
        """The tool as an OpenAI function."""
        properties = {parameter.name: {"type": parameter.json_type} for parameter in self.parameters}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Request:
    """A question that needs a tool, and the call that it should lead to. ``field`` is what a lookup asks for."""

    text: str
    name: str
    arguments: dict[str, str | int]
    field: str = ""

    @property
    def call(self) -> str:
        """The assistant's exact text."""
        body = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def make_tool(rng: random.Random) -> Tool:
    """Any one tool: a verb, a noun, one or two parameters."""
    lookup = rng.random() < 0.5
    extras = (Parameter(*rng.choice(_LOOKUP_EXTRAS if lookup else _EXTRAS)),) if rng.random() < 0.35 else ()
    if lookup:
        noun, name, value, of, fields = rng.choice(_LOOKUP_NOUNS)
        verb = rng.choice(_LOOKUP_VERBS)
        known = " and ".join(field for field, _ in fields)
        spoken, thing = noun.replace("_", " "), name.removesuffix("_id")
        description = rng.choice((f"Gives the {known} of {_article(thing)}.", f"Look up the {spoken}: {known}."))
        forms = tuple(form.replace("{of}", of) for form in _LOOKUP_FORMS)
        return Tool(f"{verb}_{noun}", noun, description, (Parameter(name, "string", value), *extras), forms, fields)
    noun, name, value, verbs = rng.choice(_ACTION_NOUNS)
    verb = rng.choice(verbs)
    words, join = _ACTION_VERBS[verb], _JOINS.get(noun, _JOINS.get(value, ""))
    description = f"{rng.choice(words).capitalize()} {_article(noun)} by {name.replace('_', ' ')}."
    forms = tuple(
        form.replace("{verb}", word).replace("{noun} {x}", f"{noun} {join}{{x}}")
        for form in _ACTION_FORMS
        for word in words
    )
    return Tool(f"{verb}_{noun}", noun, description, (Parameter(name, "string", value), *extras), forms)


def make_tools(rng: random.Random, count: int) -> tuple[Tool, ...]:
    """``count`` tools; no two look things up about the same noun, so that a request fits one tool only."""
    tools: list[Tool] = []
    while len(tools) < count:
        tool = make_tool(rng)
        twins = [other for other in tools if other.noun == tool.noun]
        if not any(other.fields or tool.fields or other.name == tool.name for other in twins):
            tools.append(tool)
    return tuple(tools)


def make_request(names: Names, rng: random.Random, tool: Tool, given: tuple[str, str] | None = None) -> Request:
    """A request for ``tool``. ``given`` is (value, how the question names it) for its first argument."""
    arguments: dict[str, str | int] = {}
    said: list[str] = []
    for index, parameter in enumerate(tool.parameters):
        value, phrase = given if given and index == 0 else (new_value(names, rng, parameter.value)[0], "")
        arguments[parameter.name] = int(value) if parameter.json_type == "integer" else value
        said.append(parameter.phrase.replace("{x}", phrase or value))
    field = rng.choice(tool.fields)[0] if tool.fields else ""
    extra = f" {said[1]}" if len(said) > 1 else ""
    text = rng.choice(tool.forms).format(field=field, x=said[0], extra=extra)
    return Request(text[0].upper() + text[1:], tool.name, arguments, field)


def make_result(names: Names, rng: random.Random, tool: Tool, request: Request) -> tuple[str, str]:
    """A result of a lookup as JSON text, and the value in it that ``request`` asks for."""
    record: dict[str, str] = {}
    for field, value in tool.fields:
        record[field.replace(" ", "_")] = new_value(names, rng, value)[0]
    return json.dumps(record, ensure_ascii=False), record[request.field.replace(" ", "_")]
