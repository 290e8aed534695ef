"""Two answers side by side: what must not be compared is masked, the rest is taken apart into paths and values."""

import re
from pathlib import Path

ABSENT = "(absent)"
# Names of members whose values each server, or each run, has of its own. Presence and kind are still compared.
MASKED = {
    "cluster_id", "member_id", "raft_term", "raftIndex", "raftTerm", "raftAppliedIndex", "dbSize", "dbSizeInUse",
    "storageVersion", "memberID", "etcdserver", "etcdcluster", "storage", "token",
}
SOFTWARE_VERSION = re.compile(r"\d+\.\d+.*")
SAVED_LENGTH_MIN = 8
# What the table says of a case in which etcd answers nothing, or perhaps nothing.
SILENCES = ("silence: True -> (absent)", "*: * -> *")


def masked(value, server, saved, name=None, parent=None):
    """`value` with the server's own ids, ports and saved values replaced by what they are."""
    if isinstance(value, dict):
        return {key: masked(inner, server, saved, key, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, server, saved, name, name if isinstance(inner, dict) else parent) for inner in value]
    own_id = name == "ID" and parent in ("members", "member") or name == "leader" and isinstance(value, str)
    version = name == "version" and isinstance(value, str) and SOFTWARE_VERSION.fullmatch(value)
    if name in MASKED and value != "" or own_id or version:
        return f"<{name}>"
    if isinstance(value, str):
        return masked_text(value, server, saved)
    return value


def masked_text(text, server, saved):
    for name, value in saved.items():
        if isinstance(value, str) and len(value) >= SAVED_LENGTH_MIN:
            text = text.replace(value, f"<{name}>")
    return text.replace(f":{server.port}", ":<port>").replace(f":{server.peer_port}", ":<peer port>")


def differences(etcd, ours):
    """Lines `path: etcd's value -> our value`, one for each place at which the answers differ."""
    left, right = dict(_flat("", etcd)), dict(_flat("", ours))
    paths = [*left, *(path for path in right if path not in left)]
    return [
        Difference(path, left.get(path, ABSENT), right.get(path, ABSENT), right)
        for path in paths
        if left.get(path, ABSENT) != right.get(path, ABSENT)
    ]


class Difference:
    """One place at which two answers differ; `context` is the whole of our answer, flat."""

    def __init__(self, path, etcd, ours, context):
        self.text = f"{path}: {etcd} -> {ours}"
        self.beside, self.context = path.rpartition(".")[0], context

    def fits(self, pattern):
        """Whether a pattern of the table fits. `{.name}` in it is what our answer has under that name, beside this place."""

        def value(match):
            return str(self.context.get(f"{self.beside}.{match.group(1)}", ABSENT))

        return _fits(re.sub(r"\{\.(\w+)\}", value, pattern), self.text)


def _flat(path, value):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else key, inner)
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from _flat(f"{path}.{at}", inner)
    else:
        yield path, value if isinstance(value, str) else repr(value)


class Intended:
    """The table of intended differences (intended.md): rows of case patterns, difference patterns and a reason. `*` stands for
    anything; both kinds of patterns are what is between backticks."""

    def __init__(self, path):
        self.rows = []
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not line.startswith("| `") or len(cells) != 3:
                continue
            cases, lines = (re.findall(r"`([^`]+)`", cell) for cell in cells[:2])
            self.rows.append((number, cases, lines, cells[2]))
        self.used = set()

    def unexpected(self, case_id, lines):
        """Those of the differences that no row lists; remembers which rows were needed."""
        left = []
        for line in lines:
            known = False
            for number, cases, patterns, _ in self.rows:
                for case in cases:
                    if _fits(case, case_id) and any(line.fits(pattern) for pattern in patterns):
                        self.used.add((number, case))
                        self.used.update((number, pattern) for pattern in patterns if line.fits(pattern))
                        known = True
            if not known:
                left.append(line)
        return left

    def is_silence(self, case_id):
        """Whether the table says that etcd answers nothing where we do."""
        return any(
            any(line in lines for line in SILENCES) and any(_fits(case, case_id) for case in cases)
            for _, cases, lines, _ in self.rows
        )

    def unneeded(self, themes):
        """What the table lists although it no longer occurs, as far as these themes can tell."""
        for number, cases, patterns, _ in self.rows:
            if not all(case.split("/")[0] in themes for case in cases if "/" in case):
                continue
            for pattern in [*cases, *patterns]:
                if (number, pattern) not in self.used:
                    yield f"intended.md:{number}: `{pattern}` is listed but does not occur"


def _fits(pattern, text):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
