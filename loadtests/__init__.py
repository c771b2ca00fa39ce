"""Load generators and measurements. Commands, not tests: nothing here is timed in CI."""

from commands.missing import end_with_a_sentence_where_a_library_is_missing

end_with_a_sentence_where_a_library_is_missing(__name__)
