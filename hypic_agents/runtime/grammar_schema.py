"""JSON schemas, walked where schemas stand: what to change before compiling, and which part is at fault. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "additionalItems", "contains", "not", "if", "then", "else"})
_SINGLE |= {"propertyNames", "unevaluatedItems", "unevaluatedProperties"}
_DEFINITIONS = ("$defs", "definitions", "$schema")
# What the standard calls an annotation may be left out; these are the formats that can be held to.
_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid uri".split())
_OBJECT = frozenset({"properties", "required", "additionalProperties", "patternProperties"})
_OBJECT |= {"minProperties", "maxProperties", "unevaluatedProperties"}
_REFERRING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_MOST_TRIED = 500


def prepare_schema(schema: Schema) -> dict[str, Any] | bool:
    """The schema to compile: every answer it allows is valid under the given one. False if no finite answer is.

    Formats that cannot be held to are dropped: by the standard, they are annotations. Objects that list their
    properties and do not mention others are closed, as most callers mean it and as other engines read it; a weak model
    would else invent properties for ever. Where schemas are combined, none is closed, as that could leave nothing.
    Parts that require themselves, and so never end, are ruled out.
    """
    parts = dict(walk(schema))
    combined = any(map(_combines, parts.values()))
    ending = _ending(parts)

    def changed(part: Schema, pointer: str) -> dict[str, Any] | bool:
        if pointer not in ending:
            return False
        new = {key: value for key, value in part.items() if key != "format" or value in _FORMATS}
        named = part.get("properties")
        lists_all = isinstance(named, Mapping) and set(_list(part.get("required"))) <= set(named)
        if lists_all and not combined and not part.keys() & (_OBJECT - {"properties", "required"}):
            new["additionalProperties"] = False
        return new

    prepared: dict[str, Any] | bool = _mapped(schema, changed, "#")
    return prepared


def walk(schema: Schema, pointer: str = "#") -> Iterator[tuple[str, Schema]]:
    """A schema and all schemas inside, outer ones first, with their JSON pointers."""
    yield pointer, schema
    for step, part in _parts(schema):
        yield from walk(part, f"{pointer}/{step}")


def find_fault(schema: Schema, problem: Callable[[Schema], str]) -> tuple[str, str]:
    """JSON pointer and problem of the innermost schema that is refused when compiled by itself.

    Args:
        schema: A schema that is refused.
        problem: What is wrong with a schema; empty where nothing is.
    """
    pointer, found, tried = "#", problem(schema), 1
    shared = {key: schema[key] for key in _DEFINITIONS if key in schema}
    part, descended = schema, True
    while descended:
        descended = False
        for step, inner in _parts(part):
            tried += 1
            if tried > _MOST_TRIED:
                break
            inner_problem = problem({**shared, **inner})
            # A part that refers outside itself and the definitions fails alone for that reason only.
            if inner_problem and ("Pointer" in found or "Pointer" not in inner_problem):
                pointer, found, part, descended = f"{pointer}/{step}", inner_problem, inner, True
                break
    return pointer, found


def _combines(part: Schema) -> bool:
    referring = part.keys() & _REFERRING
    several = len(referring) > 1 or len(_list(part.get("allOf"))) > 1
    return several or bool(referring and part.keys() & _OBJECT)


def _ending(parts: Mapping[str, Schema]) -> set[str]:
    """Pointers of the schemas that some finite value may satisfy, as far as references and requirements tell."""
    ending: set[str] = set()

    def ends(pointer: str, part: Schema) -> bool:
        def known(step: str) -> bool:
            return step not in parts or step in ending

        if not known(str(part.get("$ref"))):
            return False
        for key in ("anyOf", "oneOf", "allOf"):
            branches = [known(f"{pointer}/{key}/{index}") for index in range(len(_list(part.get(key))))]
            if branches and not (all(branches) if key == "allOf" else any(branches)):
                return False
        needed: list[str] = []
        if part.get("type") == "object":
            needed = [f"{pointer}/properties/{_escaped(str(name))}" for name in _list(part.get("required"))]
        elif part.get("type") == "array" and isinstance(part.get("minItems"), int):
            first = range(min(part["minItems"], len(_list(part.get("prefixItems")))))
            needed = [f"{pointer}/prefixItems/{index}" for index in first]
            needed += [f"{pointer}/items"] * (part["minItems"] > len(needed))
        return all(map(known, needed))

    while True:
        found = {pointer for pointer, part in parts.items() if pointer not in ending and ends(pointer, part)}
        if not found:
            return ending
        ending |= found


def _parts(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for key, value in schema.items():
        for step, item in _inside(key, value):
            if isinstance(item, Mapping):
                yield step, item


def _inside(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What stands at the places for schemas under a keyword."""
    if key in _MAPS and isinstance(value, Mapping):
        yield from ((f"{key}/{_escaped(str(name))}", item) for name, item in value.items())
    elif key in _LISTS and isinstance(value, list):
        yield from ((f"{key}/{index}", item) for index, item in enumerate(value))
    elif key in _SINGLE:
        yield key, value


def _mapped(schema: Schema, change: Callable[[Schema, str], dict[str, Any] | bool], pointer: str) -> Any:
    new = change(schema, pointer)
    if isinstance(new, bool):
        return new
    for key, value in new.items():
        items = [
            _mapped(item, change, f"{pointer}/{step}") if isinstance(item, Mapping) else item
            for step, item in _inside(key, value)
        ]
        if key in _MAPS and isinstance(value, Mapping):
            new[key] = dict(zip(value, items, strict=True))
        elif key in _LISTS and isinstance(value, list):
            new[key] = items
        elif key in _SINGLE:
            new[key] = items[0]
    return new


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
