r"""Classes of characters in regular expressions, as ECMA 262 and JSON Schema have them: ASCII.

The compiler of grammars reads `\d`, `\w` and `\s` as Unicode does, by which a code of digits may
come out in another script. Pure.
"""

import re

# What stands in place of a class, inside brackets or outside.
CLASSES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[ \t\n\r\f\v]",
    "S": r"[^ \t\n\r\f\v]",
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# Of a grammar in Lark: texts and comments, which are left as they are, and expressions.
LARK_TOKEN = re.compile(
    r'(?P<text>"(?:\\.|[^"\\\n])*")|(?P<comment>(?:#|//)[^\n]*)|(?P<expression>/(?:\\.|[^/\\\n])+/)'
)


def with_ascii_classes(expression: str) -> str:
    """The expression with each class in place of its escape."""
    return _ESCAPE.sub(lambda escape: CLASSES.get(escape[1], escape[0]), expression)


def with_ascii_terminals(lark: str) -> str:
    """A grammar in Lark whose expressions have classes in place of escapes."""
    return LARK_TOKEN.sub(
        lambda token: with_ascii_classes(token[0]) if token["expression"] else token[0], lark
    )
