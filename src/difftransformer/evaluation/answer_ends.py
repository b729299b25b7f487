"""Where a generated answer ends, and what of it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass(frozen=True)
class AnswerEnds:
    """Ends of an answer.

    Attributes:
        tokenizer: What tokens are decoded with.
        end: Token that ends an answer; None where there is none.
        until: Texts that end one and are not part of it.
    """

    tokenizer: Tokenizer
    end: int | None
    until: Sequence[str] = ()

    def ended(self, new: list[int]) -> bool:
        """Whether these new tokens are a whole answer."""
        text = self.tokenizer.decode(new) if self.until else ""
        return new[-1] == self.end or any(stop in text for stop in self.until)

    def text(self, answer: list[int]) -> str:
        """Return the answer without its end."""
        kept = answer[:-1] if answer[-1] == self.end else answer
        text: str = self.tokenizer.decode(kept)
        for stop in self.until:
            text = text.partition(stop)[0]
        return text
