"""The trainer as one rank of torchrun's, in a process that was forked and has torch already."""

from __future__ import annotations

import os
import sys

from trainers import train

if __name__ == "__main__":
    sys.stdout.write(f"rank {os.environ['RANK']} is process {os.getpid()}\n")
    code = train.main()
    sys.stdout.flush()
    if code:
        os._exit(code)
    # To torchrun, a function that ends the process without a failure has not returned yet.
