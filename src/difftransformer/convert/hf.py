"""The transformers face of our models: Auto classes, `generate`, save and load, same weights.

Imported only where generation or evaluation needs it, since transformers takes seconds to import;
importing it registers the Auto classes. It holds no computation of its own: `Transformer` does it
all, for every variant.

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
from difftransformer.convert.hf_masks import DocumentBoundaries, require_masks, segment_ids, visible
from difftransformer.errors import BackendError, CheckpointError, nearest
from difftransformer.models.config import MODEL_TYPE
from difftransformer.models.linear import linear
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_text

BACKENDS = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash_attn"}
"""Our name of each attention implementation that transformers may ask for."""

_CHANGE_NOTHING = ("cache_position", "token_type_ids")
"""Options that transformers passes and the models here ignore."""
_INPUTS = ("attention_mask", "position_ids", "past_key_values", "inputs_embeds", "labels")
_OF_THE_LOSS = ("ignore_index", "num_items_in_batch", "shift_labels")


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
    _no_split_modules = {"DecoderLayer"}  # noqa: RUF012
    supports_gradient_checkpointing = True
    gradient_checkpointing = False

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
        settings = asdict(model.config)
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
                raise CheckpointError(
                    f"checkpoint has no tensor for {name} of {module}, or one of another shape; "
                    "load it with its own config, then call resize_token_embeddings or "
                    "set_output_embeddings"
                )

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding."""
        embedding: nn.Module = self.model.embedding
        return embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding, which a tied model has as output projection, too."""
        self.model.embedding = value

    def get_output_embeddings(self) -> nn.Module | None:
        """Return the output projection; None when it is the embedding."""
        head: nn.Module | None = self.model.lm_head
        return head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output projection; a tied model has one of its own from then on."""
        self.model.lm_head = new_embeddings
        self.config.tie_word_embeddings = False
        self._renew_settings()

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Change the number of tokens, as transformers does.

        Raises:
            BackendError: Not ``mean_resizing``, which needs initial values that Llama has.
        """
        if not mean_resizing:
            raise BackendError(
                "resize_token_embeddings: new rows are drawn around the mean of the others; leave "
                "mean_resizing out, and set other values afterwards"
            )
        embedding: nn.Embedding = super().resize_token_embeddings(
            new_num_tokens, pad_to_multiple_of
        )
        self._renew_settings()
        return embedding

    def _renew_settings(self) -> None:
        """Let the model's own settings follow those of the config."""
        self.model.config = self.config.model_config()

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable[..., Any] = checkpoint,
        every_n_layers: int = 1,
    ) -> None:
        """Recompute each layer in the backward pass, always without re-entrant autograd."""
        if every_n_layers != 1 or getattr(gradient_checkpointing_func, "func", checkpoint) is not (
            checkpoint
        ):
            raise BackendError(
                "activation checkpointing: every layer is computed again, on its own device; leave "
                "every_n_layers and offload out"
            )
        self.gradient_checkpointing = enable
        self.model.activation_checkpointing = "layer" if enable else "none"

    def set_attn_implementation(
        self, attn_implementation: Any, *options: Any, **named: Any
    ) -> None:
        """Choose an attention implementation, and with it our backend."""
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
        """Return logits, and the loss when there are labels.

        Args:
            input_ids: [B, T] ids of the new positions.
            attention_mask: [B, S], 0 at padding, which may lie on either side; or a mask by query,
                bool or additive (see `hf_masks.visible`).
            position_ids: [B, T]; None counts on from the cache. Without attention_mask and cache,
                positions that restart separate documents packed in a row, as in transformers.
            past_key_values: Keys and values of earlier positions, appended to.
            inputs_embeds: [B, T, D] embeddings in place of ids.
            labels: [B, T] ids, shifted here as everywhere in transformers; -100 is left out.
            use_cache: Return a cache also when none was given.
            logits_to_keep: Only the last so many positions get logits, or those that a tensor
                lists; 0 is all.
            return_dict: False returns a tuple.
            **options: Boundaries of packed documents (see `hf_masks.DocumentBoundaries`), and
                arguments of the loss function, such as num_items_in_batch.

        Raises:
            BackendError: Static cache, a mask under flash attention, inner states asked for, an
                unknown option, or not exactly one of ids and embeddings with a position at least.
            ConfigError: A mask or boundaries of documents that do not fit, or documents with a
                cache.
        """
        inputs = _one_of(input_ids, inputs_embeds)
        (B, T), boundaries = inputs.shape[:2], DocumentBoundaries.pop_from(options)
        self._refuse(options)
        segments = segment_ids(boundaries, position_ids, (B, T), attention_mask is not None)
        if use_cache is None:  # packed documents are trained on or scored, and never continued
            again = self.gradient_checkpointing and torch.is_grad_enabled()
            wanted = self.config.use_cache and not self.training and not again
            use_cache = wanted and segments is None
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
        """Logits of hidden states, by modules: an adapter may have taken the place of one."""
        head, embedding = self.model.lm_head, self.model.embedding
        if head is not None:
            logits: Tensor = head(hidden)
            return logits
        if isinstance(embedding, nn.Embedding):
            return linear(hidden, embedding.weight)
        # Tied, so an adapter of the embedding changes the output as well: merging it will, too.
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
        mask = None if attention_mask is None else visible(attention_mask, (B, T), past)
        if mask is not None or segments is not None:
            require_masks(self.model.backend)
        model: Transformer = self.model
        return model.hidden_states(
            tokens, positions=positions, cache=cache, mask=mask, segment_ids=segments
        )

    def _refuse(self, options: dict[str, Any]) -> None:
        """Raise for outputs that fast attention does not store, and for unknown options."""
        for name in ("output_attentions", "output_hidden_states"):
            if options.pop(name, False) or getattr(self.config, name):
                raise BackendError(f"{name}: inner states are not kept; leave it out")
        for name in [name for name in options if name not in _OF_THE_LOSS]:
            if options.pop(name) is not None and name not in _CHANGE_NOTHING:
                likely = nearest(name, (*DocumentBoundaries._fields, *_INPUTS, *_OF_THE_LOSS))
                raise BackendError(
                    f"{name}: unknown option of the model{likely}; document boundaries are "
                    f"position_ids, {', '.join(DocumentBoundaries._fields)}"
                )

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | PathLike[str], **options: Any
    ) -> None:
        """Save as transformers does, with our names of the tensors and the modelling stub.

        The folder is readable by `checkpoint.load_model` too.
        """
        weights = options.get("state_dict") or self.state_dict()
        prefix = f"{self.base_model_prefix}."
        options["state_dict"] = {name.removeprefix(prefix): one for name, one in weights.items()}
        self.config.auto_map = AUTO_MAP
        super().save_pretrained(save_directory, **options)
        write_text(Path(save_directory) / f"{STUB_MODULE}.py", STUB)


def _one_of(tokens: Tensor | None, embeddings: Tensor | None) -> Tensor:
    """Return ids or embeddings, whichever there are."""
    if (tokens is None) == (embeddings is None):
        raise BackendError("give exactly one of input_ids and inputs_embeds")
    name, inputs = ("input_ids", tokens) if embeddings is None else ("inputs_embeds", embeddings)
    assert inputs is not None
    if inputs.dim() != (2 if embeddings is None else 3) or not inputs.numel():
        raise BackendError(
            f"{name} has shape {list(inputs.shape)}: give at least one sequence of one position, "
            f"[batch, positions{'' if embeddings is None else ', hidden_size'}]"
        )
    return inputs


AutoConfig.register(MODEL_TYPE, DiffTransformerConfig)
AutoModelForCausalLM.register(DiffTransformerConfig, DiffTransformerForCausalLM)
