"""`python -m tools`: the command behind ./pipeline."""

import os

from tools.cli import main

if __name__ == "__main__":
    os.chdir(os.environ.pop("PIPELINE_FROM", "."))  # the launcher left it; a path that is given is meant from there
    main()
