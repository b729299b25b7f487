"""The key/value cache of a model of transformers, which can be cut back."""

from transformers import DynamicCache


class GrowingCache(DynamicCache):
    """Keys and values of all positions, of layers with a sliding window, too."""

    def keep(self, length: int) -> None:
        """Forget all but the first ``length`` positions."""
        held = self.get_seq_length()
        assert 0 <= length <= held, (length, held)
        self.crop(length - held)
