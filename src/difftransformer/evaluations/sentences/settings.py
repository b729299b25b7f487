"""Settings of the evaluation of attention on example sentences."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, PromptSuite, Reading
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.config.validation import names_from
from difftransformer.evaluations.sentences.sentences import SENTENCES
from difftransformer.models.config import ModelConfig

RELEVANT, DISTRACTOR, OTHER = "relevant", "distractor", "other"
LONGEST = 128
"""Maximum tokens of a sentence, for tokenizers with at most one token per byte."""
ROWS, MAPS, TOKENS = "rows.safetensors", "maps.safetensors", "tokens.json"
"""Files in the details of a result, by sentence: attention of the last token [L, H, S], full
attention maps [L, H, S, S] in half precision, and the tokens with the label of each."""

Names = Annotated[list[str], AfterValidator(names_from(SENTENCES, "sentence"))]


def share_metric(sentence: str, word: str, *, lowest: bool = False) -> str:
    """Return the name of the metric for a word's share of attention in a sentence.

    ``word`` is RELEVANT or DISTRACTOR; ``lowest`` is for the head with the lowest share instead of
    the mean over heads.
    """
    return f"{sentence}_{word}" + "_lowest" * lowest


class Suite(AnyModel, PromptSuite):
    """Suite of attention of a sentence's last token on marked words (Dex, figures 4 and 18)."""

    kind: Literal["sentences"] = setting(meaning="Which evaluation the suite is.")
    sentences: Names = setting(list(SENTENCES), meaning="Sentences, by name.", min_length=1)

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why the dataset does not fit the suite, which needs models of text, or None."""
        if rows is not None:
            return "the dataset has generated rows, not sentences"
        return None

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: one sentence at a time."""
        return super().reading(model, min(LONGEST, model.max_positions))


class Options(evaluation.Options):
    """Report options: the sentences that a section shows."""

    sentences: Names = setting(meaning="Sentences, in the order of their panels.", min_length=1)
    browsed: ClassVar[bool] = True
