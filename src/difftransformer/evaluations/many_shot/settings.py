"""Settings of the many-shot evaluation: suite and report options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from difftransformer.config.base import Sizes, setting
from difftransformer.config.evaluation import AnyModel, PromptSuite
from difftransformer.config.evaluation import Options as AnyOptions
from difftransformer.config.generated_rows import ClassificationConfig, GeneratedRows
from difftransformer.config.validation import names_from
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import BUILTIN, HUB, items_folder, jsonl_file
from difftransformer.evaluations.many_shot.tasks import CLASSIFICATION_TASKS

GENERATED = "generated"
ITEMS_SEED = 43
"""Seed for choosing demonstrations and items, the same for every run."""
SPLITS = ("train", "test")


def accuracy_metric(number: int, order: int | None = None) -> str:
    """Return the name of the accuracy metric for a number of demonstrations.

    ``order`` is the seed of one order of them; None: the mean over orders.
    """
    return f"accuracy_n{number}" + ("" if order is None else f"_o{order}")


def _known_task(task: str) -> str:
    return names_from(CLASSIFICATION_TASKS, "task")([task])[0]


class Suite(AnyModel, PromptSuite):
    """Suite of in-context classification accuracy, by number and order of demonstrations.

    A prompt consists of demonstrations and an item. The model generates the item's label greedily
    among the labels of the set, as in Ratner et al. (2023), whom the paper follows. The seed of the
    order does not change which demonstrations a prompt has.
    """

    kind: Literal["many_shot"] = setting(meaning="Which evaluation the suite is.")
    task: Annotated[str, AfterValidator(_known_task)] = setting(
        meaning="Labeled set: trec, trec_fine, banking77 or clinic150."
    )
    data: str = setting(
        "hub",
        meaning="'hub': pinned revisions from the Hugging Face hub; 'generated': items in the "
        "words of the run's own dataset of labeled items, a proxy of the set; else a "
        "folder with <task>/train.jsonl and test.jsonl, or .jsonl.gz. `benchmarks` of config.yaml "
        "wins over hub and folders.",
        min_length=1,
    )
    classes: int | None = setting(
        None, meaning="Classes of a generated set; null for the others.", unit="classes", ge=2
    )
    word_noise: float = setting(
        0.0,
        meaning="Probability that a word of a demonstration comes from another class, chosen "
        "uniformly; test items have none. For generated sets.",
        ge=0,
        lt=1,
    )
    demonstrations: Sizes = setting(
        meaning="Numbers of demonstrations in a prompt; balanced, multiples of the classes.",
        unit="demonstrations",
    )
    selection: Literal["balanced", "random"] = setting(
        "balanced",
        meaning="balanced: equally many demonstrations of each class; random: any of the set, so "
        "that a class may have none.",
        source="arXiv 2410.05258v2: balanced; arXiv 2505.16333, section 4.3: random",
    )
    context_fit: Literal["require", "skip", "largest"] = setting(
        "require",
        meaning="require: every number of demonstrations must fit the context; skip: numbers that "
        "do not fit are skipped; largest: only the largest that fits is measured.",
    )
    order: Literal["random", "alternating"] = setting(
        "random",
        meaning="random: any permutation; alternating: the classes in turn, in one cycle.",
        source="arXiv 2410.05258v2, figure 7",
    )
    order_seeds: int = setting(
        1,
        meaning="Orders of the same demonstrations, an accuracy each.",
        unit="orders",
        source="figure 7 has 10 random orders, and 30 alternating",
        gt=0,
    )
    draws: int = setting(
        1,
        meaning="Independent choices of demonstrations and items, over which an order's accuracy "
        "is averaged; a generated set also draws its classes and labels.",
        gt=0,
    )
    test_items: int = setting(
        100,
        meaning="Test items in each draw.",
        unit="items",
        source="figures 6 and 7: accuracies step by 1%, in 7b by 3.3% (digitised)",
        gt=0,
    )

    @property
    def generated(self) -> bool:
        """Whether items are generated, in the words of the run's dataset."""
        return self.data == GENERATED

    @property
    def num_classes(self) -> int:
        """Number of classes of the labeled set."""
        return self.classes or CLASSIFICATION_TASKS[self.task].classes

    @model_validator(mode="after")
    def _coherent(self) -> "Suite":
        if self.generated != (self.classes is not None):
            raise ValueError(
                f"classes: belong to data: generated and are required there, got {self.classes} "
                f"with data: {self.data}"
            )
        if self.word_noise and not self.generated:
            raise ValueError(
                f"word_noise: belong to data: generated, got {self.word_noise} with data: "
                f"{self.data}"
            )
        if self.selection == "random" and self.order == "alternating":
            raise ValueError(
                "order: alternating takes the classes in turn; set selection: balanced"
            )
        odd = [number for number in self.demonstrations if number % self.num_classes]
        if odd and self.selection == "balanced":
            raise ValueError(
                f"demonstrations: {odd} are not multiples of the {self.num_classes} classes of "
                f"{self.task}: use multiples, or set selection: random"
            )
        return self

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Return whether `benchmarks` of config.yaml sets the source of items."""
        return entry.get("data") != GENERATED and benchmarks != BUILTIN

    def files(self) -> dict[str, Path]:
        """Return the local item file of each split; empty for the hub and for generated items.

        Raises:
            DataError: The folder or a split of the task is missing.
        """
        if self.generated or self.data == HUB:
            return {}
        root = items_folder(self.data, "<task>/train.jsonl and test.jsonl, or 'hub'")
        name, files = CLASSIFICATION_TASKS[self.task].folder, {}
        for split in SPLITS:
            path = jsonl_file(root, name, split)
            if path is None:
                raise DataError(
                    f"benchmarks: {root / name}: holds no {split}.jsonl (or .jsonl.gz), which "
                    f"{self.task} needs; put it there, or set `data` of the suite to hub"
                )
            files[split] = path
        return files

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why a model's context or the dataset does not fit the suite, or None.

        Prompts from files are only checked when the files are read.
        """
        items = rows if isinstance(rows, ClassificationConfig) else None
        if self.generated != (items is not None):
            labeled = "with" if items is not None else "without"
            return f"data: {self.data} does not go with a dataset {labeled} labeled items"
        if items is None:
            return None
        if self.num_classes > items.most_classes:
            return f"classes: {self.num_classes}, the dataset has {items.most_classes} at most"
        sizes = [number * items.item_length + items.words for number in self.demonstrations]
        needed = max(sizes) if self.context_fit == "require" else min(sizes)
        if needed > max_positions:
            return (
                f"demonstrations: with an item they take {needed} positions, the model has "
                f"max_positions {max_positions}: use fewer"
            )
        return None


class Options(AnyOptions):
    """Report options: accuracy by number of demonstrations, or its spread over orders."""

    by: Literal["number", "order"] = setting(
        "number",
        meaning="number: accuracy by the number of demonstrations; order: its spread over orders "
        "of the largest number.",
    )
