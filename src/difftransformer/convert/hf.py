"""Our models as transformers models: Auto classes, `generate`, `save_pretrained`, same weights.

Importing this registers the Auto classes; it takes seconds, so it is imported only when generation
or evaluation needs it. All computation is in `Transformer`, for every variant.

Shapes: B = batch, T = new positions, S = all positions including cached ones, V = vocabulary.
"""

from collections.abc import Callable
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from difftransformer.convert.checkpoint import AUTO_MAP, STUB, STUB_MODULE
from difftransformer.convert.hf_config import DiffTransformerConfig
from difftransformer.convert.hf_masks import (
    DocumentBoundaries,
    require_masks,
    segment_ids,
    to_bool_mask,
)
from difftransformer.errors import BackendError, CheckpointError, nearest
from difftransformer.models.config import MODEL_TYPE
from difftransformer.models.linear import linear
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_text

BACKENDS = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash_attn"}
"""Our backend for each attention implementation of transformers."""

_IGNORED = ("cache_position", "token_type_ids")
"""Options that transformers passes and that have no effect here."""
_INPUTS = ("attention_mask", "position_ids", "past_key_values", "inputs_embeds", "labels")
_LOSS_OPTIONS = ("ignore_index", "num_items_in_batch", "shift_labels")


class DiffTransformerForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """One of our `Transformer` models with transformers' interface of causal language models.

    Args:
        config: The config with our settings under `model`.
        model: A model to wrap, sharing its weights; None creates a new one.
    """

    config_class = DiffTransformerConfig
    base_model_prefix = "model"  # saved names have no prefix: transformers adds it when loading
    main_input_name = "input_ids"
    _supports_sdpa = True
    _supports_flash_attn = True
    _no_split_modules = {"DecoderLayer"}  # noqa: RUF012
    supports_gradient_checkpointing = True
    gradient_checkpointing = False

    def __init__(self, config: DiffTransformerConfig, model: Transformer | None = None) -> None:
        super().__init__(config)
        self._building = True
        self.model = self._new_model() if model is None else model
        self.post_init()  # type: ignore[no-untyped-call]
        self._building = False

    def _new_model(self) -> Transformer:
        """Return a new initialized model; on the meta device, where transformers loads weights."""
        backend = BACKENDS[self.config._attn_implementation or "sdpa"]
        model = Transformer(self.config.model_config(), backend)
        if not model.embedding.weight.is_meta:
            model.init_weights(int(torch.randint(2**31, ())))
        return model

    @classmethod
    def wrap(
        cls, model: Transformer, eos_token_id: int | None = None
    ) -> "DiffTransformerForCausalLM":
        """Wrap ``model`` as a transformers model that shares its parameters.

        Args:
            model: The model; its backend does not change.
            eos_token_id: Id of the end-of-sequence token.
        """
        settings = asdict(model.config)
        config = DiffTransformerConfig(model=settings, eos_token_id=eos_token_id)
        names = (name for name, backend in BACKENDS.items() if backend == model.backend)
        config._attn_implementation = next(names, "sdpa")  # transformers has no name for `blocked`
        return cls(config, model)

    def _init_weights(self, module: Any) -> None:
        """Raise for weights missing in a checkpoint, which transformers would initialize."""
        if self._building:
            return
        for name, parameter in module.named_parameters(recurse=False):
            if not getattr(parameter, "_is_hf_initialized", False):
                raise CheckpointError(
                    f"checkpoint has no tensor for {name} of {module}, or one of another shape; "
                    "load it with its own config, then call resize_token_embeddings or "
                    "set_output_embeddings"
                )

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding module."""
        embedding: nn.Module = self.model.embedding
        return embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding, and in a tied model the output projection."""
        self.model.embedding = value

    def get_output_embeddings(self) -> nn.Module | None:
        """Return the output projection module, or None if the model is tied."""
        head: nn.Module | None = self.model.lm_head
        return head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output projection; a tied model becomes untied."""
        self.model.lm_head = new_embeddings
        self.config.tie_word_embeddings = False
        self._sync_model_config()

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Change the vocabulary to ``new_num_tokens`` as transformers does; return the embedding.

        Raises:
            BackendError: ``mean_resizing`` is False, which is not supported.
        """
        if not mean_resizing:
            raise BackendError(
                "resize_token_embeddings: new rows start around the mean of the others; leave "
                "mean_resizing out, and set other values afterwards"
            )
        embedding: nn.Embedding = super().resize_token_embeddings(
            new_num_tokens, pad_to_multiple_of
        )
        self._sync_model_config()
        return embedding

    def _sync_model_config(self) -> None:
        """Update the settings of ``self.model`` from the config."""
        self.model.config = self.config.model_config()

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable[..., Any] = checkpoint,
        every_n_layers: int = 1,
    ) -> None:
        """Enable activation checkpointing of each layer, always with use_reentrant=False."""
        if every_n_layers != 1 or getattr(gradient_checkpointing_func, "func", checkpoint) is not (
            checkpoint
        ):
            raise BackendError(
                "activation checkpointing: it applies to every layer, without offloading; leave "
                "every_n_layers and offload out"
            )
        self.gradient_checkpointing = enable
        self.model.activation_checkpointing = "layer" if enable else "none"

    def set_attn_implementation(
        self, attn_implementation: Any, *options: Any, **named: Any
    ) -> None:
        """Set transformers' attention implementation, and our backend that corresponds to it."""
        super().set_attn_implementation(attn_implementation, *options, **named)
        backend = BACKENDS[self.config._attn_implementation]
        self.model.backend = backend
        for layer in self.model.layers:
            layer.attention.backend = backend

    def forward(  # noqa: PLR0913, PLR0917 - as transformers calls it
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return the logits of the new positions, and the loss if labels are given.

        Args:
            input_ids: [B, T] ids of the new positions.
            attention_mask: [B, S], 0 at padding on either side; or a full mask, bool or additive
                (see `hf_masks.to_bool_mask`).
            position_ids: [B, T]; None: they continue after the cache. Without attention_mask and
                cache, restarting positions separate packed documents, as in transformers.
            past_key_values: Keys and values of earlier positions, appended to.
            inputs_embeds: [B, T, D] embeddings in place of ids.
            labels: [B, T] ids, shifted here as in transformers; -100 is ignored.
            use_cache: Create and return a cache if none is passed.
            logits_to_keep: Number of last positions that get logits, or a tensor of positions; 0:
                all.
            return_dict: Whether to return a `CausalLMOutputWithPast` (default) instead of a tuple.
            **options: Boundaries of packed documents (see `hf_masks.DocumentBoundaries`), and
                arguments of the loss function, such as num_items_in_batch.

        Raises:
            BackendError: A static cache, a mask with flash attention, output_attentions or
                output_hidden_states, an unknown option, or not exactly one non-empty input.
            ConfigError: A mask or document boundaries that do not fit, or documents with a cache.
        """
        inputs = _require_one(input_ids, inputs_embeds)
        (B, T), boundaries = inputs.shape[:2], DocumentBoundaries.pop_from(options)
        self._check_options(options)
        segments = segment_ids(boundaries, position_ids, (B, T), attention_mask is not None)
        if use_cache is None:  # never for packed documents, which are not continued
            checkpointed = self.gradient_checkpointing and torch.is_grad_enabled()
            enabled = self.config.use_cache and not self.training and not checkpointed
            use_cache = enabled and segments is None
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        hidden = self._hidden(inputs, attention_mask, position_ids, past_key_values, segments)
        if not isinstance(logits_to_keep, Tensor):
            hidden = hidden[:, -int(logits_to_keep) :]
        else:
            hidden = hidden[:, logits_to_keep]
        logits = self._logits(hidden)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, logits.shape[-1], **options)
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
        return output.to_tuple() if return_dict is False else output

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return the logits by calling modules, since an adapter may have replaced one."""
        head, embedding = self.model.lm_head, self.model.embedding
        if head is not None:
            logits: Tensor = head(hidden)
            return logits
        if isinstance(embedding, nn.Embedding):
            return linear(hidden, embedding.weight)
        # Tied: an adapter of the embedding also changes the output, as it does after merging.
        return linear(hidden, embedding(torch.arange(self.config.vocab_size, device=hidden.device)))

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
        past, (B, T) = 0 if cache is None else int(cache.get_seq_length()), tokens.shape[:2]
        if positions is None and segments is None:
            positions = torch.arange(past, past + T, device=tokens.device)
        mask = None if attention_mask is None else to_bool_mask(attention_mask, (B, T), past)
        if mask is not None or segments is not None:
            require_masks(self.model.backend)
        model: Transformer = self.model
        return model.hidden_states(
            tokens, positions=positions, cache=cache, mask=mask, segment_ids=segments
        )

    def _check_options(self, options: dict[str, Any]) -> None:
        """Raise for unsupported outputs and for unknown options."""
        for name in ("output_attentions", "output_hidden_states"):
            if options.pop(name, False) or getattr(self.config, name):
                raise BackendError(f"{name}: not supported; leave it out")
        for name in [name for name in options if name not in _LOSS_OPTIONS]:
            if options.pop(name) is not None and name not in _IGNORED:
                hint = nearest(name, (*DocumentBoundaries._fields, *_INPUTS, *_LOSS_OPTIONS))
                raise BackendError(
                    f"{name}: unknown option of the model{hint}; document boundaries are "
                    f"position_ids, {', '.join(DocumentBoundaries._fields)}"
                )

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | PathLike[str], **options: Any
    ) -> None:
        """Save the model as transformers does, with our tensor names and the modelling stub.

        `checkpoint.load_model` can load the folder, too.
        """
        weights = options.get("state_dict") or self.state_dict()
        prefix = f"{self.base_model_prefix}."
        options["state_dict"] = {
            name.removeprefix(prefix): weight for name, weight in weights.items()
        }
        self.config.auto_map = AUTO_MAP
        super().save_pretrained(save_directory, **options)
        write_text(Path(save_directory) / f"{STUB_MODULE}.py", STUB)


def _require_one(tokens: Tensor | None, embeddings: Tensor | None) -> Tensor:
    """Return the ids or the embeddings, whichever is passed."""
    if (tokens is None) == (embeddings is None):
        raise BackendError("pass exactly one of input_ids and inputs_embeds")
    name, inputs = ("input_ids", tokens) if embeddings is None else ("inputs_embeds", embeddings)
    assert inputs is not None
    if inputs.dim() != (2 if embeddings is None else 3) or not inputs.numel():
        raise BackendError(
            f"{name} has shape {list(inputs.shape)}: pass at least one sequence of one position, "
            f"[batch, positions{'' if embeddings is None else ', hidden_size'}]"
        )
    return inputs


AutoConfig.register(MODEL_TYPE, DiffTransformerConfig)
AutoModelForCausalLM.register(DiffTransformerConfig, DiffTransformerForCausalLM)
