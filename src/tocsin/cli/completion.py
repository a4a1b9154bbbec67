"""`tocsin completion`: the script that lets a shell complete verbs and options. Nothing is written to any file."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer import completion as typers

from tocsin.cli.output import AsJson, examples, show, wants_json

__all__ = ["completion", "register"]


class Shell(StrEnum):
    """Shells that can be told."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add this verb to the command."""
    typers.completion_init()  # type: ignore[attr-defined]  # makes the command understand what the scripts ask it
    app.command(
        epilog=examples(
            'eval "$(tocsin completion bash)"',
            "tocsin completion zsh >> ~/.zshrc",
            "tocsin completion fish > ~/.config/fish/completions/tocsin.fish",
        )
    )(completion)


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="Which shell.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Print the script that lets a shell complete this command.

    Load it as the examples do.
    """
    script = typers.get_completion_script(  # type: ignore[attr-defined]
        prog_name="tocsin", complete_var="_TOCSIN_COMPLETE", shell=shell.value
    )
    show({"shell": shell.value, "script": script}, [script], wants_json(context, as_json))
