"""The `shardplan` command: reads, calls, prints, exits."""


def main() -> None:
    """Runs the command line."""
