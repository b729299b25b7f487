"""What goes to MLflow in one call."""

from __future__ import annotations

from mlflow.entities import Metric, Param, RunTag

from difftransformer.provenance.spool import Record

_ENTITIES, _TEXTS = 1000, 100  # limits of one log_batch call: all together, and of each text kind
_PARAM_LENGTH, _TAG_LENGTH = 6000, 5000


class Batch:
    """Records that go out together, in the order of the journal."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.params: list[Param] = []
        self.tags: list[RunTag] = []
        self.artifact: str | None = None
        self.status: Record | None = None
        self.offset = 0

    def takes(self, record: Record) -> bool:
        """Whether there is room; an artifact or a status closes a batch."""
        size = len(record.get("values", ()))
        if self.artifact is not None or self.status is not None:
            return False
        return {
            "metrics": len(self.metrics) + size <= _ENTITIES - 2 * _TEXTS,
            "params": len(self.params) + size <= _TEXTS,
            "tags": len(self.tags) + size <= _TEXTS,
        }.get(record["kind"], True)

    def add(self, record: Record, offset: int) -> None:
        """Take a record that ends at ``offset`` of the journal."""
        kind, values = record["kind"], record.get("values", {})
        if kind == "metrics":
            at, step = record["at"], record["step"]
            self.metrics += [Metric(name, value, at, step) for name, value in values.items()]
        elif kind == "params":
            self.params += [Param(name, text[:_PARAM_LENGTH]) for name, text in values.items()]
        elif kind == "tags":
            self.tags += [RunTag(name, text[:_TAG_LENGTH]) for name, text in values.items()]
        elif kind == "artifact":
            self.artifact = record["path"]
        elif kind == "status":
            self.status = record
        self.offset = offset
