"""A few questions on which word vectors are judged: relations of words, and words of one kind.

Everyday English, Shakespeare's and Python's. What a corpus does not say cannot be asked: questions
with a word that it lacks are left out and not counted.
"""

from itertools import permutations

# Pairs of one relation: a question is made of any two, as in king - man + woman = queen.
RELATIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "family": (
        ("man", "woman"),
        ("king", "queen"),
        ("father", "mother"),
        ("son", "daughter"),
        ("brother", "sister"),
        ("husband", "wife"),
        ("uncle", "aunt"),
        ("prince", "princess"),
        ("boy", "girl"),
        ("lord", "lady"),
        ("he", "she"),
        ("his", "her"),
    ),
    "plural": (
        ("man", "men"),
        ("hand", "hands"),
        ("day", "days"),
        ("word", "words"),
        ("eye", "eyes"),
        ("friend", "friends"),
        ("object", "objects"),
        ("method", "methods"),
        ("function", "functions"),
        ("argument", "arguments"),
        ("name", "names"),
        ("type", "types"),
        ("film", "films"),
        ("movie", "movies"),
        ("character", "characters"),
    ),
    "past": (
        ("is", "was"),
        ("are", "were"),
        ("has", "had"),
        ("do", "did"),
        ("say", "said"),
        ("make", "made"),
        ("come", "came"),
        ("give", "gave"),
        ("go", "went"),
        ("call", "called"),
        ("return", "returned"),
        ("raise", "raised"),
        ("use", "used"),
    ),
    "third person": (
        ("make", "makes"),
        ("come", "comes"),
        ("give", "gives"),
        ("return", "returns"),
        ("raise", "raises"),
        ("call", "calls"),
        ("say", "says"),
        ("take", "takes"),
    ),
    "comparative": (
        ("good", "better"),
        ("bad", "worse"),
        ("great", "greater"),
        ("high", "higher"),
        ("low", "lower"),
        ("more", "most"),
        ("less", "least"),
    ),
    "opposite": (
        ("true", "false"),
        ("first", "last"),
        ("left", "right"),
        ("before", "after"),
        ("good", "bad"),
        ("old", "new"),
        ("day", "night"),
        ("start", "stop"),
    ),
}
# Words of one kind: near each other, where vectors know what words mean.
KINDS: dict[str, tuple[str, ...]] = {
    "numbers": ("one", "two", "three", "four", "five", "six", "seven", "ten", "twenty"),
    "family": ("father", "mother", "brother", "sister", "son", "daughter", "wife", "husband"),
    "rank": ("king", "queen", "prince", "duke", "lord", "lady", "princess"),
    "pronouns": ("he", "she", "they", "we", "him", "her", "them", "us"),
    "modal verbs": ("can", "may", "must", "should", "will", "shall", "would", "could", "might"),
    "containers": ("list", "tuple", "set", "dict", "dictionary", "sequence", "mapping"),
    "numeric types": ("int", "float", "complex", "integer", "integers", "decimal"),
    "statements": ("if", "while", "for", "try", "with", "return", "raise", "import", "del"),
    "constants": ("true", "false", "none", "notimplemented"),
    "exceptions": ("typeerror", "valueerror", "keyerror", "indexerror", "attributeerror"),
    "praise": ("good", "great", "fine", "best", "excellent", "brilliant", "wonderful", "superb"),
    "blame": ("bad", "worst", "dull", "awful", "terrible", "boring", "stupid", "silly"),
    "films": ("film", "movie", "picture", "documentary", "comedy", "thriller", "drama"),
}


def analogies() -> list[tuple[str, str, str, str]]:
    """All questions: first, minus, plus and the answer."""
    return [
        (first, minus, plus, answer)
        for pairs in RELATIONS.values()
        for (minus, first), (plus, answer) in permutations(pairs, 2)
        if len({first, minus, plus, answer}) == 4
    ]
