"""Model folders, conversion to and from other formats, and attention of pretrained models."""
