"""`python -m sagefl`: the `sagefl` command when its script is not on the path."""

from .cli import app

app(prog_name="sagefl")
