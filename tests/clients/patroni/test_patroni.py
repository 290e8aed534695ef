"""Patroni's etcd3 module without PostgreSQL: two agents contend for one cluster through revgate."""

import json
import threading
import time

from support import ENDPOINT, WAIT_SECONDS_MAX, b64, post, prefix_end, unb64, until


def stored(path):
    """The kv of a key, or None."""
    kvs = post("/v3/kv/range", {"key": b64(path)}).get("kvs")
    return kvs and kvs[0]


def leader_of(agent):
    leader = agent.get_cluster().leader
    return leader and leader.name


def in_thread(call, *args):
    """Runs `call` beside the test; gives what waits for its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call(*args)), daemon=True)
    thread.start()

    def wait():
        thread.join(WAIT_SECONDS_MAX)
        assert result, "ended in time"
        return result[0]

    return wait


def test_it_finds_the_api_and_the_members(agent):
    client = agent()._client
    assert client.version_prefix == "/v3"
    assert client._cluster_version >= (3, 6)
    assert client.machines == [ENDPOINT]


def test_one_agent_initializes_the_cluster(agent):
    one, two = agent("one"), agent("two")
    assert one.initialize(create_new=True)
    assert not two.initialize(create_new=True)
    assert one.initialize(create_new=False, sysid="7000")
    until(lambda: two.get_cluster().initialize == "7000", "the other to see the identifier")
    assert one.cancel_initialization()
    until(lambda: two.get_cluster().initialize is None, "the other to see that it is taken back")


def test_members_are_keys_with_leases(agent):
    one, two = agent("one"), agent("two")
    data = {"conn_url": "postgres://10.0.0.1/", "state": "running", "text": "ä ✓"}
    assert one.touch_member(data)
    assert two.touch_member(dict(data, state="starting"))
    until(lambda: len(two.get_cluster().members) == 2, "both members to be seen through the watch")
    member = two.get_cluster().get_member("one", fallback_to_leader=False)
    assert member.data["text"] == "ä ✓"
    assert member.session == one._lease
    kv = stored(one.member_path)
    assert kv["lease"] == one._lease and isinstance(kv["lease"], str)
    one.get_cluster()
    assert one.touch_member(data), "nothing changed: nothing is written"
    assert stored(one.member_path)["version"] == kv["version"]


def test_one_agent_becomes_leader(agent):
    one, two = agent("one"), agent("two")
    assert one.attempt_to_acquire_leader()
    assert not two.attempt_to_acquire_leader()
    until(lambda: leader_of(two) == "one", "the other to see its leader")
    assert stored(one.leader_path)["lease"] == one._lease


def test_a_replica_is_woken_by_a_change_of_the_leader(agent):
    one, two = agent("one"), agent("two")
    until(lambda: two.get_cluster() is not None, "the first view")
    woken = in_thread(two.watch, None, WAIT_SECONDS_MAX - 1)
    assert one.take_leader()
    assert woken() is True
    assert leader_of(two) == "one"


def test_nobody_is_woken_when_nothing_changes(agent):
    one = agent()
    one.get_cluster()
    one.event.clear()
    assert one.watch(None, 0.3) is False


def test_the_leader_renews_its_lease_and_its_status(agent):
    one, two = agent("one", ttl=30), agent("two")
    assert one.attempt_to_acquire_leader()
    lease = one._lease

    def left():
        return int(post("/v3/lease/timetolive", {"ID": lease})["TTL"])

    until(lambda: left() < 29, "a second of the lease to pass")
    assert one.update_leader(one.get_cluster(), 4711, slots={"slot": 12}, failsafe={"one": "http://10.0.0.1/"})
    assert one._lease == lease and left() >= 29
    until(lambda: two.get_cluster().status.last_lsn == 4711, "the other to see the position")
    cluster = two.get_cluster()
    assert cluster.status.slots == {"slot": 12}
    assert cluster.failsafe == {"one": "http://10.0.0.1/"}


def test_a_leader_without_lease_takes_its_key_again_in_a_nested_txn(agent):
    one = agent()
    assert one.attempt_to_acquire_leader()
    cluster, old = one.get_cluster(), one._lease
    post("/v3/lease/revoke", {"ID": old})
    assert stored(one.leader_path) is None
    assert one.update_leader(cluster, None), "the key is gone: the inner txn makes it"
    assert one._lease != old
    kv = stored(one.leader_path)
    assert (kv["lease"], unb64(kv["value"]), kv["version"]) == (one._lease, b"one", "1")


def test_a_leader_whose_key_is_still_there_gives_it_the_new_lease(agent):
    one = agent()
    assert one.attempt_to_acquire_leader()
    cluster, old = one.get_cluster(), one._lease
    post("/v3/kv/put", {"key": b64(one.leader_path), "value": b64("one")})
    post("/v3/lease/revoke", {"ID": old})
    assert one.update_leader(cluster, None), "the key is there: the outer txn updates it"
    kv = stored(one.leader_path)
    assert (kv["lease"], kv["version"]) == (one._lease, "3")


def test_a_leader_that_was_replaced_does_not_come_back(agent):
    one, two = agent("one"), agent("two")
    assert one.attempt_to_acquire_leader()
    cluster = one.get_cluster()
    post("/v3/lease/revoke", {"ID": one._lease})
    until(lambda: leader_of(two) is None, "the other to see that the leader is gone")
    assert two.attempt_to_acquire_leader()
    assert not one.update_leader(cluster, None)
    assert unb64(stored(one.leader_path)["value"]) == b"two"


def test_a_leader_that_is_silent_loses_its_key(agent):
    one, two = agent("one", ttl=2), agent("two")
    assert one.attempt_to_acquire_leader()
    until(lambda: leader_of(two) == "one", "the other to see its leader")
    two.event.clear()
    assert two.watch(None, WAIT_SECONDS_MAX) is True, "woken by the end of the lease"
    assert leader_of(two) is None
    assert two.attempt_to_acquire_leader()


def test_a_member_whose_lease_is_gone_gets_another(agent):
    one = agent()
    assert one.touch_member({"state": "running"})
    old = one._lease
    post("/v3/lease/revoke", {"ID": old})
    assert not one.touch_member({"state": "stopped"}), "requested lease not found"
    assert one.touch_member({"state": "stopped"})
    assert one._lease != old
    assert json.loads(unb64(stored(one.member_path)["value"])) == {"state": "stopped"}


def test_a_configuration_is_changed_only_at_the_version_that_was_read(agent):
    one, two = agent("one"), agent("two")
    assert one.set_config_value('{"ttl": 30}')
    until(lambda: two.get_cluster().config is not None, "the other to see the configuration")
    read = two.get_cluster().config
    assert read.data == {"ttl": 30}
    assert one.set_config_value('{"ttl": 31}', read.version)
    assert not two.set_config_value('{"ttl": 32}', read.version)
    until(lambda: two.get_cluster().config.data == {"ttl": 31}, "the watch to go on")


def test_failover_history_and_synchronous_state(agent):
    one, two = agent("one"), agent("two")
    assert one.manual_failover("one", "two")
    assert one.set_history_value('[[1, 25165824, "no recovery target specified"]]')
    state = one.write_sync_state("one", ["two"], 0)
    assert state and one.write_sync_state("one", ["three"], 0, version=state.version)
    assert not one.write_sync_state("one", ["four"], 0, version=state.version)
    until(lambda: two.get_cluster().sync.sync_standby == "three", "the other to see the standby")
    cluster = two.get_cluster()
    assert (cluster.failover.leader, cluster.failover.candidate) == ("one", "two")
    assert cluster.history.lines[0][0] == 1
    assert not one.delete_sync_state(version=state.version)
    assert one.delete_sync_state(version=cluster.sync.version)
    until(lambda: two.get_cluster().sync.leader is None, "the other to see that it is deleted")


def test_only_the_leader_deletes_its_key(agent):
    one, two = agent("one"), agent("two")
    assert one.attempt_to_acquire_leader()
    leader = one.get_cluster().leader
    assert not two.delete_leader(leader)
    assert one.delete_leader(leader, last_lsn=99)
    assert stored(one.leader_path) is None
    until(lambda: two.get_cluster().status.last_lsn == 99, "the other to see the last position")


def test_a_broken_watch_is_made_again_without_a_gap(agent):
    one, two = agent("one"), agent("two")
    until(lambda: two.get_cluster() is not None, "the first view")
    for number in range(5):
        two._client._restart_watcher()
        assert one.set_config_value(json.dumps({"number": number}))
        until(
            lambda: (config := two.get_cluster().config) and config.data == {"number": number},
            "the change to be seen",
        )


def test_the_control_tool_reads_without_a_watch(agent):
    one = agent("one")
    assert one.attempt_to_acquire_leader()
    control = agent("control", patronictl=True)
    assert control._lease is None
    assert leader_of(control) == "one", "a linearizable read sees it at once"


def test_a_cluster_is_deleted_whole(agent):
    one = agent()
    assert one.initialize(create_new=True, sysid="1") and one.attempt_to_acquire_leader()
    assert one.touch_member({}) and one.set_config_value("{}")
    assert one.delete_cluster()
    path = one.client_path("")
    left = post("/v3/kv/range", {"key": b64(path), "range_end": b64(prefix_end(path)), "count_only": True})
    assert "count" not in left


def test_twenty_agents_have_one_leader_at_a_time(agent):
    agents = [agent(f"agent{number}") for number in range(20)]
    results = [in_thread(one.attempt_to_acquire_leader) for one in agents]
    assert sum(bool(wait()) for wait in results) == 1
    (leader,) = [one for one in agents if one.get_cluster() and stored(one.leader_path)["lease"] == one._lease]
    began = time.monotonic()
    assert leader.update_leader(leader.get_cluster(), 1)
    assert time.monotonic() - began < WAIT_SECONDS_MAX
    for one in agents:
        until(lambda one=one: leader_of(one) == leader._name, f"{one._name} to see the leader")
