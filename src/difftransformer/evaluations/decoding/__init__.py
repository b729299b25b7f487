"""Speed of decoding with a KV cache, and the bytes of the cache (DIFF V2 post)."""
