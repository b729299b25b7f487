"""What heads put out: how alike they are, how much each matters, and what Dex makes of them."""
