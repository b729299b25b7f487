"""What is asked about attention on example sentences."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, PromptSuite, Reading
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.config.validation import known_names
from difftransformer.evaluations.sentences.sentences import SENTENCES
from difftransformer.models.config import ModelConfig

HELPS, MISLEADS, OTHER = "helps", "misleads", "other"
LONGEST = 128
"""Tokens of a sentence at most, by any tokenizer that writes a byte a token or less."""
DETAILS, MAPS, TOKENS = "rows.safetensors", "maps.safetensors", "tokens.json"
"""What is left of a model: rows of the last token by sentence, [L, H, S], whole maps in half
precision, [L, H, S, S], and its tokens with the word that each belongs to."""

Names = Annotated[list[str], AfterValidator(known_names(SENTENCES, "sentence"))]


def share_name(sentence: str, word: str, *, lowest: bool = False) -> str:
    """Metric of the share of a word in a sentence: mean over heads, or that of the lowest head."""
    return f"{sentence}_{word}" + "_lowest" * lowest


class Suite(AnyModel, PromptSuite):
    """Where the last token of a few sentences attends (Dex, figures 4 and 18)."""

    kind: Literal["sentences"] = setting(meaning="Which evaluation the suite is.")
    sentences: Names = setting(
        list(SENTENCES), meaning="Which of the sentences are read.", min_length=1
    )

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Sentences are of text."""
        if rows is not None:
            return "the dataset is of generated rows, which have no sentences"
        return None

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """A sentence at a time."""
        return super().reading(model, min(LONGEST, model.max_positions))


class Options(evaluation.Options):
    """Which sentences a section shows."""

    sentences: Names = setting(meaning="Sentences in the order of their pictures.", min_length=1)
    browsed: ClassVar[bool] = True
