"""Facts of short Python files: constants, parameter defaults and imports."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Final

from hypic_agents.quality.worlds.schema import Attribute, Fact

NUMBER_CONSTANTS: Final = tuple(
    "MAX_RETRIES PAGE_SIZE TIMEOUT BATCH_SIZE PORT MAX_ITEMS RATE_LIMIT CACHE_SIZE DELAY NUM_WORKERS MIN_AGE SHIP_COST "
    "MAX_USERS WAIT_TIME QUEUE_LENGTH BASE_PRICE".split()
)
WORD_CONSTANTS: Final = tuple(
    "REGION DEFAULT_HOST OWNER CURRENCY BUCKET QUEUE_NAME THEME TABLE_NAME MODE TOKEN".split()
)
_VERBS: Final = tuple("send load save find make open close read write check sort join copy move count".split())
_NOUNS: Final = tuple("order user file page table image mail item report note list row label box".split())
_NUMBER_PARAMS: Final = tuple("limit size weight delay depth width retries level step count_to".split())
_WORD_PARAMS: Final = tuple("zone name target mode owner label".split())


@cache
def constant(name: str) -> Attribute:
    """The value of a module constant, a number or a word by its name."""
    return Attribute(
        name,
        "#" if name in NUMBER_CONSTANTS else "word",
        name,
        (f"sets {name} to {{v}}", f"defines {name} as {{v}}"),
        (f"in {{e}}, {name} is {{v}}", f"the value of {name} in {{e}} is {{v}}"),
        (f"What is {name} in {{e}}?", f"What value does {name} have in {{e}}?", f"To what does {{e}} set {name}?"),
    )


@cache
def default(function: str, param: str) -> Attribute:
    """The default of one parameter of a function; ``key`` is "function(param)"."""
    return Attribute(
        f"{function}({param})",
        "#" if param in _NUMBER_PARAMS else "word",
        f"{param} of {function}",
        (f"gives {param} of {function} the default {{v}}", f"defines {function} with {param} {{v}}"),
        (f"in {{e}}, {function} has {param} {{v}}", f"{param} of {function} in {{e}} defaults to {{v}}"),
        (
            f"What is the default of {param} in {function} of {{e}}?",
            f"In {{e}}, what is the default {param} of {function}?",
            f"Which default does {{e}} give {param} of {function}?",
        ),
    )


@cache
def imported(name: str) -> Attribute:
    """The module that a constant is imported from; ``key`` is "import NAME"."""
    return Attribute(
        f"import {name}",
        "module",
        f"source of {name}",
        (f"imports {name} from {{v}}", f"takes {name} from {{v}}"),
        (f"in {{e}}, {name} is imported from {{v}}", f"{name} comes to {{e}} from {{v}}"),
        (
            f"From where does {{e}} import {name}?",
            f"From which module does {name} in {{e}} come?",
            f"Which module gives {{e}} its {name}?",
        ),
    )


def random_code_attribute(rng: random.Random, *, imports: bool = True) -> Attribute:
    """Any constant, default or (unless ``imports`` is false) import."""
    draw = rng.random()
    if draw < 0.45:
        return constant(rng.choice(NUMBER_CONSTANTS if rng.random() < 0.6 else WORD_CONSTANTS))
    if draw < 0.9 or not imports:
        function = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}"
        return default(function, rng.choice(_NUMBER_PARAMS if rng.random() < 0.6 else _WORD_PARAMS))
    return imported(rng.choice(NUMBER_CONSTANTS + WORD_CONSTANTS))


def render_file(rng: random.Random, name: str, facts: Sequence[Fact]) -> str:
    """The Python file that states ``facts`` (all of one module), headed by its name."""
    imports, constants, functions = [], [], []
    for fact in facts:
        key, value = fact.attribute.key, fact.value
        literal = value if fact.attribute.value == "#" else f'"{value}"'
        if fact.attribute.value == "module":
            imports.append(f"from {value} import {key.removeprefix('import ')}")
        elif "(" in key:
            function, param = key[:-1].split("(")
            body = rng.choice((f"return {param}", f"print({param})", "pass"))
            functions.append(f"def {function}({param}={literal}):\n    {body}")
        else:
            constants.append(f"{key} = {literal}")
    rng.shuffle(constants)
    rng.shuffle(functions)
    head = rng.choice((f"# {name}", f'"""File {name}."""', f"File: {name}", f"# file: {name}"))
    return "\n".join((head, *imports, *constants, *functions))
