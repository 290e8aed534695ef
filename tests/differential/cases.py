"""The files of cases: one theme a file, one case a line, options of a case in indented lines under it.

    # what this part is about
    put-new     POST /v3/kv/put {"key":"YQ==","value":"MQ=="}
    leased      POST /v3/lease/grant {"TTL":60}
        save lease ID
    watch       OPEN w POST /v3/watch {"create_request":{"key":"YQ=="}}
    created     READ w 1

README.md has the list of verbs and options.
"""

import base64
import re

METHODS = ("POST", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
VERBS = (*METHODS, "RAW", "OPEN", "CHUNKED", "WS", "SEND", "FINISH", "READ", "EVENTS", "QUIET", "ENDED", "HANGUP")
OPTIONS = ("header", "save", "until", "show", "mask", "drop", "any-text", "escaped", "unordered")


class Case:
    """One line of a theme."""

    def __init__(self, theme, line, name, verb, words):
        self.theme = theme
        self.line = line
        self.name = name
        self.verb = verb
        self.words = words
        self.options = []

    @property
    def id(self):
        return f"{self.theme}/{self.name}"

    def option(self, wanted):
        """Arguments of every option of that name."""
        return [argument for name, argument in self.options if name == wanted]


class Theme:
    """A file of cases: the flags its servers get, and the cases in their order."""

    def __init__(self, path):
        self.name = path.stem
        self.flags = []
        self.cases = []
        everywhere = []
        names = set()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path.name}:{number}"
            words = line.split(None, 1)
            if not words or words[0].startswith("#"):
                continue
            if line[0] in " \t":
                self.cases[-1].options.append(option(where, words))
            elif words[0] == "flags":
                self.flags = words[1].split()
            elif words[0] == "everywhere":
                everywhere.append(option(where, words[1].split(None, 1)))
            else:
                name, verb, rest = (*line.split(None, 2), "")[:3]
                if verb not in VERBS:
                    raise ValueError(f"{where}: no such verb: {verb}")
                if name in names:
                    raise ValueError(f"{where}: there is a case {name} already")
                names.add(name)
                case = Case(self.name, number, name, verb, rest)
                case.options.extend(everywhere)
                self.cases.append(case)


def option(where, words):
    name, argument = (*words, "")[:2]
    if name not in OPTIONS:
        raise ValueError(f"{where}: no such option: {name}")
    return name, argument.strip()


def expand(text, variables):
    """Puts in what `${…}` stands for: `${name}` a saved value, `${3*<ab>}` ababab, `${3*,<ab>}` ab,ab,ab, `${b64:text}` text
    in base64 (variables in it come first)."""

    def replace(match):
        inner = match.group(1)
        times = re.fullmatch(r"(\d+)\*(,?)<(.*)>", inner)
        if times:
            return times.group(2).join([times.group(3)] * int(times.group(1)))
        if inner.startswith("b64:"):
            return base64.b64encode(inner[4:].encode()).decode()
        return str(variables.get(inner, f"(no {inner})"))

    text = re.sub(r"\$\{(\d+\*,?<.*?>)\}", replace, text)
    return re.sub(r"\$\{([^${}]*)\}", replace, re.sub(r"\$\{(\w+)\}", replace, text))


def escaped(text):
    """Bytes written as in a Python literal."""
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")
