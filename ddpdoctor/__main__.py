"""Lets ``python -m ddpdoctor`` work."""

from ddpdoctor.cli import main

if __name__ == "__main__":
    main()
