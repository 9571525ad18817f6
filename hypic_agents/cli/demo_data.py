"""What the demo reads and asks. Every name and number is made up, so no model can know an answer beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from hypic_agents.core import Segment, SegmentKind

SYSTEM = "Answer the question from the documents. If they do not say, answer: not stated."


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question and the words a right answer holds."""

    text: str
    expected: str


def _sheet(name: str, text: str, kind: SegmentKind = "document") -> Segment:
    return Segment(text.strip() + "\n", kind=kind, source_id=name)


DOCUMENTS: tuple[Segment, ...] = (
    _sheet(
        "velmora-pump",
        "The Velmora pump is made by Karsten Works. The Velmora pump weighs 48 kilograms. The Velmora pump costs 615 "
        "crowns. The Velmora pump is painted green. The Velmora pump needs a new filter every 14 weeks. The Velmora "
        "pump is stored in hall 7.",
    ),
    _sheet(
        "ostrin-lamp",
        "The Ostrin lamp is made by Bellmar and Sons. The Ostrin lamp weighs 3 kilograms. The Ostrin lamp costs 92 "
        "crowns. The Ostrin lamp is painted white. The Ostrin lamp has a guarantee of 36 months. The Ostrin lamp is "
        "stored in hall 2.",
    ),
    _sheet(
        "mira-soldane",
        "Mira Soldane lives in Tarnovo. Mira Soldane works as a surveyor. Mira Soldane was born in 1974. Mira "
        "Soldane plays the cello. The sister of Mira Soldane is Ilse Soldane. Mira Soldane drives a blue van.",
    ),
    _sheet(
        "pavel-orrin",
        "Pavel Orrin lives in Keldby. Pavel Orrin works as a baker. Pavel Orrin was born in 1988. Pavel Orrin "
        "collects maps. The manager of Pavel Orrin is Mira Soldane. Pavel Orrin drives a red truck.",
    ),
    _sheet(
        "tarnovo",
        "Tarnovo is a town on the river Besk. Tarnovo has 8412 residents. The mayor of Tarnovo is Hanna Rieve. The "
        "market in Tarnovo opens at 6. The oldest bridge in Tarnovo was built in 1732. Tarnovo is known for its "
        "glass.",
    ),
    _sheet(
        "keldby",
        "Keldby is a village on lake Orm. Keldby has 963 residents. The mayor of Keldby is Jonas Falk. The ferry to "
        "Keldby leaves at 9. The school in Keldby was built in 1905. Keldby is known for its smoked trout.",
    ),
    _sheet(
        "karsten-works",
        "Karsten Works is a factory in Drevin. Karsten Works employs 274 people. The director of Karsten Works is "
        "Oda Lindqvar. Karsten Works was founded in 1951. Karsten Works delivers on Tuesday. The phone number of "
        "Karsten Works ends in 4460.",
    ),
    _sheet(
        "library",
        "The Harrow library is in Soldane street. The Harrow library opens at 10. The Harrow library holds 52300 "
        "books. The keeper of the Harrow library is Tomas Wren. The Harrow library lends a book for 21 days. The "
        "reading room of the Harrow library has 64 seats.",
    ),
    _sheet(
        "ship",
        "The ship Aldera sails from Norhaven. The captain of the Aldera is Ruth Calder. The Aldera carries 180 "
        "passengers. The Aldera was built in 1996. The Aldera is 74 meters long. The Aldera sails every Friday.",
    ),
    _sheet(
        "price-change",
        "Price notice of 3 May. The Ostrin lamp now costs 118 crowns. The price of 92 crowns is no longer valid. The "
        "Ostrin lamp is now stored in hall 5. The notice was signed by Ilse Soldane. The notice is valid until June.",
    ),
    _sheet(
        "limits.py",
        "# limits.py: settings of the loader\n"
        "MAX_RETRIES = 6\n"
        "TIMEOUT_SECONDS = 45\n"
        'DEFAULT_REGION = "borland"\n'
        "BATCH_SIZE = 320\n"
        "\n"
        "def backoff(attempt):\n"
        "    return 2 * attempt + 1\n",
        kind="file",
    ),
    _sheet(
        "memory-note",
        "Memory note. The user prefers short answers. The user works in the Drevin office. The user's badge number "
        "is 7719. The user's next meeting is with Tomas Wren. The meeting is on Thursday. The user drinks tea.",
        kind="memory",
    ),
    _sheet(
        "trace",
        "Trace of the last run. Step 1: opened the order book. Step 2: found order 5083. Step 3: order 5083 is for "
        "12 Velmora pumps. Step 4: the buyer of order 5083 is Norhaven Harbor. Step 5: order 5083 was paid. Step 6: "
        "order 5083 ships on 18 June.",
        kind="trace",
    ),
)

QUESTIONS: tuple[DemoQuestion, ...] = (
    DemoQuestion("How much does the Velmora pump weigh?", "48 kilograms"),
    DemoQuestion("Where does Mira Soldane live?", "Tarnovo"),
    DemoQuestion("Who is the captain of the Aldera?", "Ruth Calder"),
    DemoQuestion("What does the Ostrin lamp cost now?", "118 crowns"),
    DemoQuestion("What is TIMEOUT_SECONDS in limits.py?", "45"),
    DemoQuestion("Who is the mayor of the town where Mira Soldane lives?", "Hanna Rieve"),
    DemoQuestion("Who is the director of the factory that makes the Velmora pump?", "Oda Lindqvar"),
    DemoQuestion("Who is the buyer of order 5083?", "Norhaven Harbor"),
    DemoQuestion("What is the user's badge number?", "7719"),
    DemoQuestion("How old is Ruth Calder?", "not stated"),
)
