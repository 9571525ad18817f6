"""A coding agent on a small temporary repository: it lists, reads and edits files over several tasks.

The files that it knows stand in every prompt before the task, the one used last in front; a file is read again only
after an edit. So the order changes with every step, and a prefix cache would start anew. Here each file is a segment:
it is computed once for each of its versions, wherever it stands.

The bundled ``tiny`` has one million parameters: it answers questions about files, but cannot be relied on to plan. With
``--plan script``, its default, every step is a real call of the model, which is held to the tool that a script names;
where the arguments it writes are not the script's, the script's are used, and the output counts how often that was so.
With ``--plan model``, the default of any other model, it decides alone.

    pip install 'hypic-agents[langchain]'
    python examples/agents/coding_agent.py                    # the small model that ships with the package
    python examples/agents/coding_agent.py --model Qwen/Qwen3.5-4B
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from meter import Meter, Row, add_plan, is_scripted, make_parser, show, show_segments

from hypic_agents.integrations.langchain import ChatHypic

SYSTEM = "You help with notes, files and tools. Keep answers short. Unknown answers are: not stated."
MAX_STEPS = 10

FILES = {
    "bikar.py": """\
# file: bikar.py
MAX_ITEMS = 398
TIMEOUT = 45
PAGE_SIZE = 20
PORT = 71
CACHE_SIZE = 210
""",
    "malzino.py": """\
# file: malzino.py
from bikar import MAX_ITEMS
from dorvel import DEFAULT_HOST
TABLE_NAME = "Dabis"
def load_order(limit=31):
    return limit
def save_item(depth=4):
    pass
""",
    "dorvel.py": """\
# file: dorvel.py
from bikar import PORT
from bikar import TIMEOUT
DEFAULT_HOST = "Galdel"
def send_mail(target="Tealbel"):
    print(target)
def read_note(level=2):
    return level
""",
    "tulgano.py": """\
# file: tulgano.py
from malzino import TABLE_NAME
THEME = "Bikar"
RATE_LIMIT = 62
def sort_page(width=80):
    return width
def write_list(zone="Olmar"):
    pass
""",
}


@dataclass(frozen=True, slots=True)
class Task:
    """What the user asks, and the steps that a script takes for it: a tool's name and its arguments."""

    text: str
    script: tuple[tuple[str, dict[str, str]], ...] = ()


def read(path: str) -> tuple[str, dict[str, str]]:
    return "read_file", {"path": path}


TASKS = (
    Task("What is TIMEOUT in file bikar.py?", (("list_files", {}), read("bikar.py"))),
    Task("File malzino.py imports MAX_ITEMS. What is its value?", (read("malzino.py"),)),
    Task("What is the default of target in send_mail of file dorvel.py?", (read("dorvel.py"),)),
    Task(
        "Set MAX_ITEMS to 512 in file bikar.py. What is MAX_ITEMS in file bikar.py?",
        (
            ("edit_file", {"path": "bikar.py", "old": "MAX_ITEMS = 398", "new": "MAX_ITEMS = 512"}),
            read("bikar.py"),
        ),
    ),
    Task("File malzino.py imports MAX_ITEMS. What is its value?"),
    Task("File tulgano.py imports TABLE_NAME. What is its value?", (read("tulgano.py"),)),
)


def spec(name: str, description: str, *parameters: str) -> dict[str, Any]:
    """A tool as an OpenAI function whose parameters are all texts."""
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in parameters}, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    spec("list_files", "Lists the files."),
    spec("read_file", "Reads a file by path.", "path"),
    spec("edit_file", "Replaces a text in a file by path.", "path", "old", "new"),
)


@dataclass
class Repository:
    """The files that the agent works on, and a count of how often each was read."""

    root: Path
    reads: dict[str, int] = field(default_factory=dict)

    def run(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """The result of a tool, and whether it could be run; errors are results too."""
        files = sorted(path.name for path in self.root.iterdir())
        if name == "list_files":
            return "\n".join(files), True
        path = str(arguments.get("path"))
        if path not in files:
            return f"error: there is no file {path}; the files: {', '.join(files)}", False
        text = (self.root / path).read_text("utf-8")
        if name == "read_file":
            self.reads[path] = self.reads.get(path, 0) + 1
            return text, True
        old, new = str(arguments.get("old")), str(arguments.get("new"))
        if text.count(old) != 1:
            return f"error: the text {old!r} stands {text.count(old)} times in {path}, not once", False
        (self.root / path).write_text(text.replace(old, new), "utf-8")
        return f"{path} was changed", True


@dataclass
class Agent:
    """Works on one task after another. ``known`` are the files as they were read last, the latest in front."""

    model: ChatHypic
    meter: Meter
    repository: Repository
    scripted: bool
    known: dict[str, str] = field(default_factory=dict)
    agreed: list[bool] = field(default_factory=list)

    def work(self, task: Task) -> Row:
        answer = self._follow(task) if self.scripted else self._decide(task)
        return self.meter.row(task.text, answer)

    def _messages(self, task: Task, trace: Sequence[BaseMessage] = ()) -> list[BaseMessage]:
        """The known files as document blocks, the task, and what was done for it so far."""
        blocks: list[str | dict[Any, Any]] = []
        for path, text in self.known.items():
            blocks.append({"type": "text-plain", "mime_type": "text/plain", "text": text, "title": path})
            blocks.append({"type": "text", "text": "\n\n"})
        return [SystemMessage(SYSTEM), HumanMessage([*blocks, {"type": "text", "text": task.text}]), *trace]

    def _follow(self, task: Task) -> str:
        """Take the script's steps, asking the model for each, and let it answer from the files."""
        trace: list[BaseMessage] = []
        for number, (name, arguments) in enumerate(task.script):
            asked = self.model.bind_tools(TOOLS, tool_choice=name).invoke(self._messages(task, trace))
            self.agreed.append([(call["name"], call["args"]) for call in asked.tool_calls] == [(name, arguments)])
            call = {"name": name, "args": arguments, "id": f"call_{number}"}
            trace += [AIMessage("", tool_calls=[call]), self._run(call)]
        return self.model.invoke(self._messages(task)).text

    def _decide(self, task: Task) -> str:
        """Let the model call tools until it answers."""
        model = self.model.bind_tools(TOOLS)
        trace: list[BaseMessage] = []
        for _ in range(MAX_STEPS):
            answer = model.invoke(self._messages(task, trace))
            if not answer.tool_calls:
                return answer.text
            trace += [answer, *(self._run(dict(call)) for call in answer.tool_calls)]
        return f"no answer after {MAX_STEPS} steps"

    def _run(self, call: dict[str, Any]) -> ToolMessage:
        name, path = call["name"], str(call["args"].get("path"))
        result, done = self.repository.run(name, call["args"])
        if name == "read_file" and done:
            self.known = {path: result} | {other: text for other, text in self.known.items() if other != path}
            result = f"{path} stands above"
        elif name == "edit_file" and done:
            # The old text is wrong now: out of the prompts, and out of the store.
            self.known.pop(path, None)
            self.meter.invalidate(source_id=path)
        return ToolMessage(result, tool_call_id=call["id"])


def main(argv: Sequence[str] | None = None) -> list[Row]:
    parser = make_parser(__doc__)
    add_plan(parser)
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="how many (default: all)")
    options = parser.parse_args(argv)

    meter = Meter(options.model, options.threads)
    meter.warm_up()
    model = ChatHypic(backend=meter, max_tokens=options.max_tokens)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text, "utf-8")
        agent = Agent(model, meter, Repository(Path(folder)), scripted=is_scripted(options))
        rows = [agent.work(task) for task in TASKS[: options.tasks]]
    show(f"a coding agent over {len(FILES)} files; steps by {'a script' if agent.scripted else 'the model'}", rows)
    show_segments(rows[-1].calls[-1])
    if agent.scripted:
        print(f"The model's own calls were those of the script {sum(agent.agreed)} of {len(agent.agreed)} times.")
    print("Read:", ", ".join(f"{path} {count}x" for path, count in agent.repository.reads.items()))
    meter.close()
    return rows


if __name__ == "__main__":
    main()
