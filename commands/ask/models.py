"""`attendant models`: what a server serves."""

from commands.ask.asked import Asked
from commands.ask.shown.model_table import ModelTable


def show_models(asked: Asked) -> None:
    with asked.client() as client:
        asked.show(client.models(), ModelTable)
