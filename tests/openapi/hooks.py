"""What schemathesis must be told about revgate.

- Streams without an end, and calls that wait for others, get a deadline.
- A stream's answer is one JSON object a line: each is held against the schema here, and schemathesis then sees the first.
- What would take the member out of service for all that follows is not asked: an alarm is not raised.

Counts what was asked, by operation, into the file that REVGATE_ASKED names.
"""

import atexit
import collections
import json
import os
import re

import jsonschema_rs
import schemathesis

WITHOUT_END = {"/v3/watch", "/v3/lock/lock", "/v3/election/campaign", "/v3/election/observe"}
STREAMS = {"/v3/watch", "/v3/lease/keepalive", "/v3/maintenance/snapshot", "/v3/election/observe"}
# The same paths can end a run, or a member, by design: they are for tests that know what they do.
FIRST_ALARM_THAT_IS_RAISED = ("ACTIVATE", 1)

asked = collections.Counter()
validators = {}


@schemathesis.hook
def filter_body(context, body):
    operation = getattr(context, "operation", None)
    if operation is None or not operation.path.startswith("/v3/maintenance/alarm") or not isinstance(body, dict):
        return True
    return body.get("action") not in FIRST_ALARM_THAT_IS_RAISED


@schemathesis.hook
def before_call(context, case, **kwargs):
    asked[f"{case.method} {case.operation.path}"] += 1
    if case.headers is None:
        case.headers = {}
    name = next((name for name in case.headers if name.lower() == "grpc-timeout"), "Grpc-Timeout")
    if case.operation.path in WITHOUT_END:
        case.headers[name] = "60m"
    elif re.fullmatch("[0-9]{1,8}[HMSmun]", str(case.headers.get(name, ""))):
        # One that is well-formed but too short would be answered with status 504, and rightly so.
        case.headers[name] = "10S"


@schemathesis.hook
def after_call(context, case, response):
    if case.operation.path not in STREAMS or response.status_code != 200:
        return
    validator = line_validator(case.operation)
    lines = response.content.split(b"\n")
    assert lines.pop() == b"", "the last line has no end"
    for line in lines:
        validator.validate(json.loads(line))
    # A stream that said nothing within its deadline said nothing wrong.
    response.content = lines[0] if lines else b'{"result":{}}'


def line_validator(operation):
    path = operation.path
    if path not in validators:
        document = operation.schema.raw_schema
        content = document["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]
        validators[path] = jsonschema_rs.Draft202012Validator(
            {**content["schema"], "components": document["components"]}
        )
    return validators[path]


@atexit.register
def write_counts():
    if name := os.environ.get("REVGATE_ASKED"):
        with open(name, "w") as file:
            json.dump(asked, file, indent=2, sort_keys=True)
