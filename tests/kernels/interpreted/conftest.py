"""Kernels on a CPU: Triton decides on its first import whether it interprets them.

So these tests have a session of their own: `TRITON_INTERPRET=1 pytest tests/kernels/interpreted`,
which tests/kernels/test_interpreter.py starts.
"""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
