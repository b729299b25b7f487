"""What a language model is asked as a judge, by version, and how its reply is read.

A version never changes once judgements were made with it: a better wording is a new version. The
judge sees what Lookback Lens (Chuang et al. 2024) shows it: document, reference, output.
"""

import re
from typing import NamedTuple

from difftransformer.evaluation.answers import Answer

Message = dict[str, str]


class Prompt(NamedTuple):
    """A version of the prompt.

    Attributes:
        system: What the judge is told first.
        user: Template of the case, with {facts}, {document}, {question}, {kind}, {reference} and
            {output}.
        facts: What stands for {facts} in format recall.
    """

    system: str
    user: str
    facts: str


_V1 = Prompt(
    system=(
        "You decide whether a text is faithful to a document. A text is faithful if everything it "
        "states follows from the document. It hallucinates if it states anything that the document "
        "contradicts or does not contain. Leaving something out is no fault. Bad grammar is no "
        "fault as long as one can tell what is stated; words that state nothing at all about the "
        "document are no faithful text. Use the document alone, not what you know otherwise."
    ),
    user=(
        "{facts}Document:\n<document>\n{document}\n</document>\n\n"
        "{question}Right {kind}, for comparison:\n<reference>\n{reference}\n</reference>\n\n"
        "Text to judge:\n<text>\n{output}\n</text>\n\n"
        "First name in one or two sentences the worst disagreement between the text and the "
        "document, if there is any. Then write a last line that is exactly one of\n"
        "Verdict: faithful\nVerdict: hallucinated"
    ),
    facts=(
        "The document is a row of code words. A word that starts with k directly followed by a "
        "word that starts with v states that this key has this value. All other words state "
        "nothing. In the text to judge, too, each word that starts with k states a value for that "
        "key, the word directly behind it. The text is faithful if the document states every one "
        "of these pairs.\n\n"
    ),
)

PROMPTS = {"v1": _V1}
"""Every version by its name in `EndpointJudge.prompt`."""

_VERDICT = re.compile(r"^\W*verdict\W+(faithful|hallucinated)\W*$", re.IGNORECASE | re.MULTILINE)


def messages(version: str, answer: Answer) -> list[Message]:
    """Write the case of an answer as messages of a chat."""
    prompt = PROMPTS[version]
    question = f"Question:\n{answer.question}\n\n" if answer.task == "answer" else ""
    user = prompt.user.format(
        facts=prompt.facts if answer.format == "recall" else "",
        document=answer.document,
        question=question,
        kind=answer.task,
        reference=answer.reference,
        output=answer.stated,
    )
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": user}]


def verdict(reply: str) -> bool | None:
    """Read a reply: True for faithful, False for hallucinated, None without one clear verdict."""
    found = {match.group(1).lower() for match in _VERDICT.finditer(reply)}
    return found == {"faithful"} if len(found) == 1 else None
