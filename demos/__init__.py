"""Every system, from nothing to an answered request. Imports every package that it shows."""

from commands.missing import end_with_a_sentence_where_a_library_is_missing

end_with_a_sentence_where_a_library_is_missing(__name__)
