"""`attendant serve`: what it prints when it is ready."""

from rich.text import Text

from commands.ask.trials import ADDRESS, FIRST_QUESTIONS, first_question
from commands.ask.verbs import VERBS
from commands.serve import address_lines
from service.settings import Settings


def test_no_address_breaks_in_a_terminal_of_80_characters() -> None:
    """HTTP's address has a line of its own above the line that programs wait for."""
    lines = address_lines(Settings(), 8001, 8002, 8000)
    http, last = (Text.from_markup(line).plain for line in lines)
    assert http == "HTTP http://127.0.0.1:8000   a browser shows the models there"
    assert last == "gRPC 127.0.0.1:8001   metrics http://127.0.0.1:8002/metrics"
    assert max(len(http), len(last)) < 80
    assert len(address_lines(Settings(), 8001, 8002, None)) == 1
    without = address_lines(Settings(playground=False), 8001, 8002, 8000)[0]
    assert Text.from_markup(without).plain == "HTTP http://127.0.0.1:8000"


def test_the_first_question_is_a_command_for_the_task_of_the_model() -> None:
    """At another address than the default it names that; tensors have no question of a line."""
    for task, (verb, _) in FIRST_QUESTIONS.items():
        assert task in VERBS[verb].tasks
    asked = first_question("mine", "fill-mask", "<mask>", ADDRESS)
    assert asked == "attendant fill-mask mine 'a text with a <mask>'"
    asked = first_question("mine", "embedding", "", "127.0.0.1:9")
    assert asked == "attendant embed mine 'a text' 'another text' --address 127.0.0.1:9"
    assert first_question("mine", "tensors", "", ADDRESS) == ""
