"""Models as lm-eval asks them: its own `HFLM`, around a model of ours or one from elsewhere."""

from typing import TYPE_CHECKING, Any

from lm_eval.models.huggingface import HFLM

from difftransformer.config.suites.base import SuiteSettings
from difftransformer.errors import CheckpointError
from difftransformer.evaluation.item_files import first_line
from difftransformer.evaluation.memory import require_memory_for_files
from difftransformer.evaluation.pretrained_folder import model_files
from difftransformer.evaluation.subject import PretrainedSubject, Subject
from difftransformer.models.transformer import Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Request = tuple[tuple[str, str], list[int], list[int]]


class CountingLM(HFLM):  # type: ignore[misc]
    """`HFLM` that counts the requests whose beginning does not fit into the context.

    lm-eval drops the first tokens of those and only warns, and stops at an answer that is longer
    than the whole context; here such an answer loses its first tokens as well, and is counted.

    Attributes:
        requests: Requests so far.
        cut: Those of them that lost tokens.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.requests = self.cut = 0
        super().__init__(*arguments, **options)

    def _loglikelihood_tokens(
        self, requests: list[Request], *arguments: Any, **options: Any
    ) -> list[tuple[float, bool]]:
        longest = self.max_length
        fitting = [(text, context, answer[-longest:]) for text, context, answer in requests]
        self.requests += len(requests)
        self.cut += sum(len(context) + len(answer) > longest + 1 for _, context, answer in requests)
        found: list[tuple[float, bool]] = super()._loglikelihood_tokens(
            fitting, *arguments, **options
        )
        return found


def language_model(suite: SuiteSettings, subject: Subject | PretrainedSubject) -> CountingLM:
    """Wrap a model as the `lm_eval` command would.

    Raises:
        CheckpointError: The model or its tokenizer cannot be loaded.
    """
    options: dict[str, Any] = {"batch_size": suite.batch_size}
    if suite.precision == "bf16":
        options["mixed_precision_dtype"] = "bfloat16"
    if isinstance(subject, PretrainedSubject):
        return _from_elsewhere(subject, options)
    return _ours(subject, options)


def _ours(subject: Subject, options: dict[str, Any]) -> CountingLM:
    from difftransformer.models.hf import DiffTransformerForCausalLM

    model = subject.scorer.model
    assert isinstance(model, Transformer), type(model)
    tokenizer = _tokenizer(subject)
    face = DiffTransformerForCausalLM.wrap(model, eos_token_id=tokenizer.eos_token_id)
    return CountingLM(pretrained=face, tokenizer=tokenizer, **options)


def _tokenizer(subject: Subject) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    folder = subject.dataset.folder
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{folder}: has no tokenizer.json, so its models cannot be asked in words: evaluate a "
            "run that is trained on text"
        )
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder))
    return tokenizer


def _from_elsewhere(subject: PretrainedSubject, options: dict[str, Any]) -> CountingLM:
    model = subject.model
    files = model_files(model)
    local = bool(files)
    if local:
        require_memory_for_files(files, subject.device, model.name)
    # An absolute path is no id of the hub, so nothing is asked there.
    name = str(model.folder.resolve()) if local and model.folder else model.name
    if model.safetensors:
        options["use_safetensors"] = True
    try:
        return CountingLM(
            pretrained=name,
            revision=model.revision or "main",
            dtype=model.dtype,
            trust_remote_code=model.trust_remote_code,
            weights_only=True,  # of pickled weights the tensors alone, whatever else they hold
            device=str(subject.device),
            **options,
        )
    except Exception as error:  # transformers, the hub and the network fail in many ways
        where = "" if local else " from the Hugging Face hub"
        cure = (
            "is it a causal language model with its tokenizer?"
            if local
            else "check its id, its revision and the network, or name a folder"
        )
        raise CheckpointError(
            f"{model.name}: cannot be loaded{where} ({first_line(error)}); {cure}"
        ) from None
