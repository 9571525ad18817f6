"""Ask SGLang servers through LangChain, over documents whose order changes with every question.

$ python examples/agents/remote_sglang.py http://127.0.0.1:30000 --tokenizer Qwen/Qwen3.5-4B

The servers may be HYPIC builds, which reuse every document wherever it stands, or stock SGLang, which reuses what two
prompts have in common at their beginning. docs/remote.md tells how to launch either.
"""

from __future__ import annotations

import argparse
import os
import sys

from hypic_agents.errors import HypicError
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.sglang import SGLangBackend

GATES = {"north": "Velmo", "south": "Ariska", "east": "Tondril", "west": "Hesper"}
DOCUMENTS = [
    f"The {gate} gate\nThe {gate} gate is kept by {keeper}. It opens at dawn and closes when the harbour bell rings "
    f"twice. Carts pay two coins, travellers on foot pay nothing. {keeper} writes every cart into the book of the gate."
    for gate, keeper in GATES.items()
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="+", help="a server, or several that serve one model")
    parser.add_argument("--tokenizer", help="the model's tokenizer: a directory or hub name; HYPIC builds need it")
    parser.add_argument("--max-tokens", type=int, default=40)
    options = parser.parse_args()
    try:
        backend = SGLangBackend(options.url, tokenizer=options.tokenizer, api_key=os.environ.get("SGLANG_API_KEY"))
        model = ChatHypic(backend=backend, max_tokens=options.max_tokens, temperature=0.0, max_retries=2)
        for turn, gate in enumerate(GATES):
            order = DOCUMENTS[turn:] + DOCUMENTS[:turn]
            blocks = [{"type": "text", "text": f"{text}\n\n", "cache_control": {"type": "ephemeral"}} for text in order]
            question = {"type": "text", "text": f"Who keeps the {gate} gate?"}
            answer = model.invoke([("system", "Answer with a name."), ("user", [*blocks, question])])
            report = answer.response_metadata["hypic"]
            print(f"{question['text']} {' '.join(answer.text.split())}")
            print(f"  {report['reused_tokens']} of {report['prompt_tokens']} tokens reused ({report['policy']})")
        backend.close()
    except HypicError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
