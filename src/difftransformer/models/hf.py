"""The transformers face of our models: Auto classes, `generate`, save and load, same weights.

Imported only where generation or evaluation needs it, since transformers takes seconds to import;
importing it registers the Auto classes. It holds no computation of its own: `Transformer` does it
all, for every variant.

Shapes: B = batch, T = new positions, S = all positions including cached ones, V = vocabulary.
"""

from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import Cache, DynamicCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from difftransformer.config.model import MODEL_TYPE, ModelConfig
from difftransformer.config.validation import validate
from difftransformer.errors import BackendError, CheckpointError
from difftransformer.models.checkpoint import AUTO_MAP, STUB, STUB_MODULE
from difftransformer.models.hf_masks import Boundaries, require_masks, segment_ids, visible
from difftransformer.models.matrices import linear
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_text

BACKENDS = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash_attn"}
"""Our name of each attention implementation that transformers may ask for."""


class DiffTransformerConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """A transformers config that carries our `ModelConfig` under the key `model`.

    The names that transformers and lm-eval look for (hidden_size, ...) are derived from it, never
    stored, so the two cannot disagree.
    """

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    has_no_defaults_at_init = True

    model: dict[str, Any] | None = None
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def model_config(self) -> ModelConfig:
        """Return the settings of the model.

        Raises:
            CheckpointError: If there are none.
            ConfigError: If they cannot be used.
        """
        if self.model is None:
            raise CheckpointError("config.json: no key `model`; name a folder of difftransformer")
        return validate(ModelConfig, self.model, "config.json: model")

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self.model_config().vocab_size

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.model_config().d_model

    @property
    def num_hidden_layers(self) -> int:
        """Decoder layers, which the cache is sized by."""
        return self.model_config().num_layers

    @property
    def max_position_embeddings(self) -> int:
        """Longest context, which lm-eval cuts its requests to."""
        return self.model_config().max_positions

    @property
    def tie_word_embeddings(self) -> bool:
        """False always: a tied model has no second matrix that transformers would have to tie."""
        return False


class DiffTransformerForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """A `Transformer` as transformers expects a causal language model to be.

    Args:
        config: The config with our settings under `model`.
        model: A model to wrap, sharing its weights; None builds a fresh one.
    """

    config_class = DiffTransformerConfig
    base_model_prefix = "model"  # saved names have no prefix: transformers adds it when loading
    main_input_name = "input_ids"
    _supports_sdpa = True
    _supports_flash_attn = True
    _no_split_modules = {"Layer"}  # noqa: RUF012

    def __init__(self, config: DiffTransformerConfig, model: Transformer | None = None) -> None:
        super().__init__(config)
        self._building = True
        self.model = self._fresh() if model is None else model
        self.post_init()  # type: ignore[no-untyped-call]
        self._building = False

    def _fresh(self) -> Transformer:
        """Return a new model; without weights when transformers is about to load them (meta)."""
        backend = BACKENDS[self.config._attn_implementation or "sdpa"]
        model = Transformer(self.config.model_config(), backend)
        if not model.embedding.weight.is_meta:
            model.init_weights(int(torch.randint(2**31, ())))
        return model

    @classmethod
    def wrap(
        cls, model: Transformer, eos_token_id: int | None = None
    ) -> "DiffTransformerForCausalLM":
        """Return the transformers face of ``model``, over the same parameters.

        Args:
            model: The model; its backend stays as it is.
            eos_token_id: Id of the token that ends a generation.
        """
        settings = model.config.model_dump(mode="json")
        config = DiffTransformerConfig(model=settings, eos_token_id=eos_token_id)
        known = (name for name, ours in BACKENDS.items() if ours == model.backend)
        config._attn_implementation = next(known, "sdpa")  # transformers has no word for `blocked`
        return cls(config, model)

    def _init_weights(self, module: Any) -> None:
        """Refuse a checkpoint that lacks weights, which transformers would draw at random."""
        if self._building:
            return
        for name, parameter in module.named_parameters(recurse=False):
            if not getattr(parameter, "_is_hf_initialized", False):
                raise CheckpointError(f"checkpoint has no tensor for {name} of {module}")

    def get_input_embeddings(self) -> torch.nn.Module:
        """Return the token embedding."""
        embedding: torch.nn.Module = self.model.embedding
        return embedding

    def get_output_embeddings(self) -> torch.nn.Module | None:
        """Return the output projection; None when it is the embedding."""
        head: torch.nn.Module | None = self.model.lm_head
        return head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return logits, and the loss when there are labels.

        Args:
            input_ids: [B, T] ids of the new positions.
            attention_mask: [B, S], 0 at padding, which may lie on either side; or a mask by query,
                bool or additive (see `hf_masks.visible`).
            position_ids: [B, T]; None counts on from the cache. Without attention_mask and cache,
                positions that restart separate documents packed in a row, as in transformers.
            past_key_values: Keys and values of earlier positions, appended to.
            labels: [B, T] ids, shifted here as everywhere in transformers; -100 is left out.
            use_cache: Return a cache also when none was given.
            logits_to_keep: Only the last so many positions get logits; 0 is all.
            return_dict: False returns a tuple.
            **options: Boundaries of packed documents (see `hf_masks.Boundaries`), and what the loss
                function takes, such as num_items_in_batch.

        Raises:
            BackendError: Static cache, a mask under flash attention, or inner states asked for.
            ConfigError: A mask or boundaries of documents that do not fit, or documents with a
                cache.
        """
        self._refuse(options)
        (B, T), boundaries = input_ids.shape, Boundaries.taken_from(options)
        segments = segment_ids(boundaries, position_ids, (B, T), attention_mask is not None)
        if use_cache is None:  # packed documents are trained on or scored, and never continued
            use_cache = self.config.use_cache and not self.training and segments is None
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        hidden = self._hidden(input_ids, attention_mask, position_ids, past_key_values, segments)
        logits = linear(hidden[:, -logits_to_keep:], self.model.output_weight)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **options)
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
        return output.to_tuple() if return_dict is False else output

    def _hidden(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None,
        positions: Tensor | None,
        cache: Cache | None,
        segments: Tensor | None,
    ) -> Tensor:
        if cache is not None and cache.is_compileable:
            raise BackendError("static caches are not supported; leave cache_implementation out")
        past, (B, T) = 0 if cache is None else int(cache.get_seq_length()), tokens.shape
        if positions is None and segments is None:
            positions = torch.arange(past, past + T, device=tokens.device)
        mask = None if attention_mask is None else visible(attention_mask, (B, T), past)
        if mask is not None or segments is not None:
            require_masks(self.model.backend)
        model: Transformer = self.model
        return model.hidden_states(
            tokens, positions=positions, cache=cache, mask=mask, segment_ids=segments
        )

    def _refuse(self, options: dict[str, Any]) -> None:
        """Raise for outputs that fast attention does not keep, rather than leave them out."""
        for name in ("output_attentions", "output_hidden_states"):
            if options.pop(name, False) or getattr(self.config, name):
                raise BackendError(f"{name}: inner states are not kept; leave it out")

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | PathLike[str], **options: Any
    ) -> None:
        """Save as transformers does, with our names of the tensors and the modelling stub.

        The folder is readable by `checkpoint.load_model` too.
        """
        options.setdefault("state_dict", self.model.state_dict())
        self.config.auto_map = AUTO_MAP
        super().save_pretrained(save_directory, **options)
        write_text(Path(save_directory) / f"{STUB_MODULE}.py", STUB)


AutoConfig.register(MODEL_TYPE, DiffTransformerConfig)
AutoModelForCausalLM.register(DiffTransformerConfig, DiffTransformerForCausalLM)
