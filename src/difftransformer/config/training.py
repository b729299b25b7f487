"""Settings of the trainer: budget, batch, optimizer, precision, validation, checkpoints."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from difftransformer.config.base import Backend, Settings, require_half, setting


class ProbeConfig(Settings):
    """Settings of the measurement of retrieval accuracy during training on a recall dataset.

    It gives the number of steps in which a model learns retrieval.
    """

    needles: list[int] = setting(
        [2, 4],
        meaning="Numbers of key-value pairs N in a probe row, one accuracy each.",
        unit="pairs",
    )
    queries: int = setting(
        2, meaning="Queries R at the end of each probe row.", unit="queries", gt=0
    )
    samples: int = setting(128, meaning="Probe rows for each N.", unit="rows", gt=0)
    every: int = setting(
        20, meaning="Steps between probes: the resolution of steps_to_learn.", unit="steps", gt=0
    )
    learned_needles: int = setting(
        4, meaning="N at which `learned_threshold` is tested.", unit="pairs"
    )
    learned_threshold: float = setting(
        0.9,
        meaning="Accuracy of the first probe at which a model has learned retrieval.",
        gt=0,
        le=1,
    )

    @model_validator(mode="after")
    def _needles_are_measured(self) -> Self:
        if not self.needles or min(self.needles) < 1 or len(set(self.needles)) < len(self.needles):
            raise ValueError(f"needles must be distinct positive numbers, got {self.needles}")
        if self.learned_needles not in self.needles:
            raise ValueError(
                f"learned_needles {self.learned_needles} is not among needles {self.needles}"
            )
        return self


class TrainingConfig(Settings):
    """Settings of a training, except its model, its data and its seed."""

    tokens: int | None = setting(
        None,
        meaning="Training budget; rounded up to whole steps. Give tokens or steps, not both.",
        unit="tokens",
        gt=0,
        le=10**15,
    )
    steps: int | None = setting(
        None, meaning="Training budget in optimizer steps.", unit="steps", gt=0, le=10**9
    )
    seq_len: int = setting(
        meaning="Positions of one sequence that are trained on.", unit="tokens", gt=0, le=2**27
    )
    batch_size: int = setting(
        meaning="Sequences in one optimizer step.", unit="sequences", gt=0, le=2**24
    )
    world_size: int = setting(
        1,
        meaning="Processes that train the model together, on CUDA one a GPU: each has a share of "
        "the weights, of the optimizer and of every batch, and must have as many sequences of it.",
        unit="processes",
        gt=0,
        le=2**14,
    )
    micro_batch_size: int | None = setting(
        None,
        meaning="Sequences that a process holds in memory at once; gradients accumulate to its "
        "share of batch_size, which it must divide. None: that share.",
        unit="sequences",
        gt=0,
    )
    activation_checkpointing: Literal["none", "layer", "selective"] = setting(
        "none",
        meaning="layer: only a layer's input is kept for the backward pass, which recomputes the "
        "rest: a third more work for a fraction of the memory. selective: matrix products and "
        "attention outputs are kept as well. Results are identical.",
    )
    lr: float = setting(
        meaning="Peak learning rate.",
        source="arXiv 2410.05258 table 10 for the paper's sizes",
        gt=0,
    )
    min_lr_ratio: float = setting(
        0.04,
        meaning="Learning rate of the last step as a share of the peak.",
        source="arXiv 2410.05258 section 3.1: 1.28e-5 of 3.2e-4",
        ge=0,
        le=1,
    )
    decay: Literal["linear", "cosine"] = setting(
        "linear",
        meaning="Shape of the decay from the peak to the last step.",
        source="arXiv 2410.05258 appendix B: linear",
    )
    warmup_steps: int = setting(
        meaning="Steps over which the learning rate rises linearly to its peak.",
        unit="steps",
        source="arXiv 2410.05258: 1000 (section 3.1), 375 (section 3.2)",
        ge=0,
    )
    cooldown_after_learning: int | None = setting(
        None,
        meaning="Steps from the probe at which retrieval is learned to the end of the run: the "
        "learning rate stays at its peak until then and decays over these. A run that does not "
        "learn decays over the last ones of its budget. None: the whole budget, decaying from the "
        "peak on.",
        unit="steps",
        gt=0,
    )
    betas: tuple[float, float] = setting(
        (0.9, 0.95),
        meaning="AdamW's decay rates of the first and second moment.",
        source="arXiv 2410.05258: (0.9, 0.95) in section 3.1, (0.9, 0.98) in section 3.2",
        strict=False,
    )
    eps: float = setting(1e-8, meaning="AdamW's denominator floor.", gt=0)
    weight_decay: float = setting(
        0.1,
        meaning="Decoupled weight decay of the matrices (parameters of two or more dimensions, "
        "embeddings among them); gains, biases and lambda vectors have none.",
        source="arXiv 2410.05258: 0.1 in section 3.1, 0.05 in section 3.2",
        ge=0,
    )
    grad_clip: float | None = setting(
        1.0, meaning="Largest global norm of the gradient; None: no clipping.", gt=0
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights and optimizer. Slow on most CPUs."
    )
    compile: bool = setting(
        False,
        meaning="torch.compile the layers, on a GPU the loss, too: a minute once, then faster "
        "steps.",
    )
    deterministic: bool | None = setting(
        None, meaning="Only deterministic kernels. None: on the CPU yes, on CUDA (slower) no."
    )
    backend: Literal["auto", Backend] = setting(
        "auto", meaning="Attention implementation; auto picks, logs and records its choice."
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", meaning="Where to train; auto picks CUDA where there is one, logs and records it."
    )
    document_mask: bool = setting(
        False,
        meaning="Keep attention within the documents of packed text; positions restart in each. "
        "Validation while training does, too; evaluations read whole windows.",
        exclude_if=lambda on: not on,  # keeps the settings of runs without it byte-identical
    )
    validate_every: int | None = setting(
        None,
        meaning="Steps between validations; None: only after the last step.",
        unit="steps",
        gt=0,
    )
    validation_tokens: int | None = setting(
        None,
        meaning="Tokens of the validation split used while training; None: all of it.",
        unit="tokens",
        gt=0,
    )
    checkpoint_every: int | None = setting(
        None,
        meaning="Steps between checkpoints of the training state; None: only after the last step.",
        unit="steps",
        gt=0,
    )
    save_checkpoints_at: list[Annotated[float, Field(gt=0, lt=1)]] = setting(
        [],
        meaning="Fractions of the budget at which intermediate checkpoints are saved, for suites "
        "that evaluate a model during training; rounded to whole steps.",
    )
    log_every: int = setting(
        10,
        meaning="Steps between rows of the history; the loss of a row is their mean.",
        unit="steps",
        gt=0,
    )
    probe: ProbeConfig | None = setting(
        None, meaning="Retrieval accuracy while training; only for recall datasets."
    )
    loss_chunk: int = setting(
        1024,
        meaning="Positions whose logits exist at one time in the cross-entropy.",
        unit="tokens",
        gt=0,
    )
    divergence_loss: float | None = setting(
        None,
        meaning="Stop when the mean loss of a history row exceeds this after warm-up; NaN and "
        "infinity always stop.",
        unit="nats",
        gt=0,
    )

    on_divergence: Literal["stop", "record"] = setting(
        "stop",
        meaning="What a diverging run does: stop with an error, or end early with the history up "
        "to there and a result that says so. For sweeps whose rates are meant to go too far.",
    )

    @model_validator(mode="after")
    def _budget_and_batch_fit(self) -> Self:
        if (self.tokens is None) == (self.steps is None):
            raise ValueError("give exactly one of tokens and steps, the other null")
        if self.batch_size % self.world_size:
            raise ValueError(
                f"world_size {self.world_size} does not divide batch_size {self.batch_size}"
            )
        if self.local_batch_size % self.micro_batch:
            of = (
                f"the {self.local_batch_size} sequences of each process of "
                if self.world_size > 1
                else ""
            )
            raise ValueError(
                f"micro_batch_size {self.micro_batch_size} does not divide {of}"
                f"batch_size {self.batch_size}"
            )
        if self.warmup_steps >= self.total_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} must be below the run's {self.total_steps} steps"
            )
        if len(set(self.intermediate_steps) - {0, self.total_steps}) < len(
            self.save_checkpoints_at
        ):
            raise ValueError(
                f"save_checkpoints_at {self.save_checkpoints_at} of {self.total_steps} steps are "
                "not distinct steps before the last: leave some out"
            )
        if self.save_checkpoints_at and self.on_divergence == "record":
            raise ValueError(
                "save_checkpoints_at and on_divergence: record exclude each other: a run that may "
                "end early has no weights of later steps to keep"
            )
        if (cooldown := self.cooldown_after_learning) is not None:
            self._require_room(cooldown)
        if self.document_mask and self.backend == "flash_attn":
            raise ValueError(
                "document_mask and backend flash_attn exclude each other: it takes no masks; take "
                "sdpa or auto"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")
        return self

    @model_validator(mode="after")
    def _some_compute_in_half(self) -> Self:
        require_half([self.backend], self.precision, self.device)
        return self

    def _require_room(self, cooldown: int) -> None:
        if self.probe is None or self.save_checkpoints_at:
            raise ValueError(
                "cooldown_after_learning needs a probe, which says when retrieval is learned, and "
                "no save_checkpoints_at, since the run may end before"
            )
        if self.warmup_steps + cooldown > self.total_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and cooldown_after_learning {cooldown} exceed "
                f"the run's {self.total_steps} steps"
            )

    @property
    def micro_batch(self) -> int:
        """Number of sequences of one process in one forward pass."""
        return self.micro_batch_size or self.local_batch_size

    @property
    def local_batch_size(self) -> int:
        """Number of sequences of one process in one optimizer step."""
        return self.batch_size // self.world_size

    @property
    def tokens_per_step(self) -> int:
        """Number of target tokens of all processes in one optimizer step."""
        return self.batch_size * self.seq_len

    @property
    def total_steps(self) -> int:
        """Number of optimizer steps of the whole training."""
        if self.steps is not None:
            return self.steps
        assert self.tokens is not None
        return -(-self.tokens // self.tokens_per_step)

    @property
    def intermediate_steps(self) -> list[int]:
        """Steps after which intermediate checkpoints are saved, ascending; the last is not one."""
        return sorted(round(share * self.total_steps) for share in self.save_checkpoints_at)
