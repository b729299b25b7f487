"""Head outputs: similarity of heads, importance of heads, and how Dex changes them."""
