"""What adapting a trained model teaches, and what it makes it forget."""
