"""What our own lm-eval tasks of greedy generation share, whatever they ask and score."""

from collections.abc import Mapping
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.task import Task
from lm_eval.config.task import TaskConfig
from lm_eval.filters import build_filter_ensemble


class GenerationTask(Task):  # type: ignore[misc]
    """Documents that are there already, each answered without solved examples.

    A subclass makes the prompt of a document, which is plain data, and scores what comes back under
    the name of the ``metric``. An answer has at most ``new_tokens`` and ends before one of the
    texts ``until``; lm-eval keeps the metadata in its description of the task.
    """

    VERSION = 1
    OUTPUT_TYPE = "generate_until"

    def __init__(
        self,
        name: str,
        documents: list[dict[str, Any]],
        *,
        until: list[str],
        new_tokens: int,
        metric: str,
        **metadata: Any,
    ) -> None:
        # Not Task.__init__, which downloads, and makes a config of defaults with a warning.
        self._docs, self._metric = documents, metric
        self.generation = {"until": until, "max_gen_toks": new_tokens, "do_sample": False}
        self._filters = [build_filter_ensemble("none", [["take_first", None]])]
        self._config = TaskConfig(
            task=name,
            output_type=self.OUTPUT_TYPE,
            generation_kwargs=self.generation,
            num_fewshot=0,
            metadata={"version": self.VERSION, **metadata},
        )

    def has_training_docs(self) -> bool:
        """No."""
        return False

    def has_validation_docs(self) -> bool:
        """No."""
        return False

    def has_test_docs(self) -> bool:
        """Yes: all documents."""
        return True

    def test_docs(self) -> list[dict[str, Any]]:
        """Documents as plain data."""
        return self._docs

    def build_all_requests(
        self, *, limit: int | None = None, rank: int = 0, world_size: int = 1, **_: Any
    ) -> None:
        """Make the requests; there are no examples to put before a prompt."""
        documents = self.doc_iterator(rank=rank, limit=limit, world_size=world_size)
        self._instances = [
            request
            for index, document in documents
            for request in self.construct_requests(
                document, self.doc_to_text(document), metadata=(self.task_name, index, 1)
            )
        ]

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **kwargs: Any) -> list[Instance]:
        """One generation; of a document with ``questions`` one for each, behind its prompt."""
        return [
            Instance(
                request_type=self.OUTPUT_TYPE, doc=doc, arguments=(ctx + question, self.generation),
                idx=index, metadata=kwargs["metadata"],
            )
            for index, question in enumerate(doc.get("questions", [""]))
        ]  # fmt: skip

    def score(self, doc: Mapping[str, Any], results: list[str]) -> float:
        """Score of a document from the outputs to its requests."""
        raise NotImplementedError

    def process_results(self, doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
        """The score under the metric's name."""
        return {self._metric: self.score(doc, results)}

    def aggregation(self) -> dict[str, Any]:
        """Mean over the documents."""
        return {self._metric: mean}

    def higher_is_better(self) -> dict[str, bool]:
        """Yes."""
        return {self._metric: True}
