#!/usr/bin/env bash
# charts/revgate by Helm's own engine: linted strictly, drawn for members x TLS x authentication x monitoring and held against
# Kubernetes' schemas, refusals and their words, and what is drawn run as processes: members, their probes, the jobs' scripts.
source "$(dirname "$0")/../lib.sh"

readonly TESTS=126

if ! have curl curl || ! have openssl openssl || ! python_environment chart --requirement tests/chart/requirements.txt; then
    skipped "chart: no curl, no openssl or no Python environment with its packages is to be had here"
    finish
    exit
fi
# Kinds of operators have no schema there either: the tests look at those by hand.
skipped "chart: kubeconform, whose schemas cannot be fetched by name; kubernetes-validate has the same in its package"

export REVGATE
# The tests start their own members.
PORT=0
if have promtool prometheus; then
    run_pytest "$TESTS" tests/chart
else
    skipped "chart: promtool is not to be had here; the rules as drawn were not read"
    run_pytest "$((TESTS - 1))" tests/chart --deselect tests/chart/test_drawn.py::test_rules_are_of_this_release_alone
fi
finish
