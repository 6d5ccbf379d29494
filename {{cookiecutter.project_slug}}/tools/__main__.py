"""`python -m tools`: the command behind ./pipeline."""

from tools.cli import main

if __name__ == "__main__":
    main()
