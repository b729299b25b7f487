"""Head outputs: similarity of heads, importance of heads, and changes by Dex."""
