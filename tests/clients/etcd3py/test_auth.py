"""etcd3-py: users, roles and permissions. Switches authentication on and, at the end, off."""

import etcd3
import pytest
from etcd3 import errors
from etcd3.models import authpbPermissionType
from support import HOST, PORT, WAIT_SECONDS_MAX, b64

ROOT = ("root", "root's secret")
ALICE = ("alice", "alice's secret")


def client_of(user=None):
    client = etcd3.Client(HOST, PORT, timeout=15)
    if user:
        client.auth(*user)
    return client


@pytest.fixture(scope="module")
def root():
    """The client of root, with authentication on: alice may read and write below alice/, and read public/."""
    client = client_of()
    with pytest.raises(errors.ErrAuthNotEnabled):
        client.auth(*ALICE)
    client.put("private", "")
    client.put("public/a", "for all")
    for name, secret in (ROOT, ALICE):
        client.user_add(name, secret)
    client.role_add("root")
    client.role_add("writer")
    client.role_grant_permission("writer", "alice/", permType=authpbPermissionType.READWRITE, prefix=True)
    client.role_grant_permission("writer", "public/", permType=authpbPermissionType.READ, prefix=True)
    client.user_grant_role("alice", "writer")
    with pytest.raises(errors.Etcd3Exception):
        client.auth_enable()
    client.user_grant_role("root", "root")
    client.auth_enable()
    client.auth(*ROOT)
    yield client
    client.auth_disable()
    with client_of() as after:
        assert after.range("private").count == 1


@pytest.fixture
def alice(root):
    with client_of(ALICE) as client:
        yield client


def denied(call, *args, **kwargs):
    with pytest.raises(errors.ErrPermissionDenied) as caught:
        call(*args, **kwargs)
    assert (caught.value.code, caught.value.status) == (7, 403)


def test_without_a_token_nothing_is_read(root):
    with client_of() as nobody, pytest.raises(errors.ErrUserEmpty) as caught:
        nobody.range("public/a")
    assert (caught.value.code, caught.value.status) == (3, 400)


def test_a_wrong_password_and_a_wrong_token(root):
    with client_of() as client:
        for user in (("alice", "wrong"), ("nobody", "wrong")):
            with pytest.raises(errors.ErrAuthFailed) as caught:
                client.auth(*user)
            assert (caught.value.code, caught.value.status) == (3, 400)
        client.token = "not.a.token"
        with pytest.raises(errors.ErrInvalidAuthToken) as caught:
            client.range("public/a")
        assert (caught.value.code, caught.value.status) == (16, 401)


def test_a_user_reads_and_writes_within_her_ranges(alice, root):
    alice.put("alice/a", "hers")
    assert alice.range("alice/", prefix=True).kvs[0].value == b"hers"
    assert alice.range("public/a").kvs[0].value == b"for all"
    assert root.range("alice/a").kvs[0].value == b"hers"
    assert alice.delete_range("alice/", prefix=True).deleted == 1


def test_a_user_is_denied_what_is_not_hers(alice):
    denied(alice.put, "public/a", "x")
    denied(alice.range, "private")
    denied(alice.range, all=True)
    denied(alice.range, "alice/", range_end="b")
    denied(alice.delete_range, "public/", prefix=True)
    denied(alice.put, "alice", "one byte short of the prefix")


def test_both_branches_of_a_txn_are_asked(alice):
    for branch in ("Then", "Else"):
        txn = alice.Txn()
        txn.Then(txn.put("alice/a", ""))
        getattr(txn, branch)(txn.range("private"))
        denied(txn.commit)
    txn = alice.Txn()
    txn.If(txn.key("private").version == 1)
    denied(txn.commit)
    assert alice.range("alice/a").kvs is None


def test_a_watch_without_permission_is_cancelled(alice):
    watcher = alice.Watcher("private", max_retries=0)
    watcher.set_default_timeout(WAIT_SECONDS_MAX)
    with pytest.raises(errors.Etcd3WatchCanceled) as caught:
        with watcher:
            next(iter(watcher))
    assert "permission denied" in caught.value.error


def test_a_watch_with_permission_sees_events(alice):
    start = alice.put("alice/w", "seen").header.revision
    with alice.Watcher("alice/", prefix=True, start_revision=start) as watcher:
        assert next(iter(watcher)).value == b"seen"


def test_administration_is_root_s(alice):
    denied(alice.user_add, "mallory", "x")
    denied(alice.role_add, "more")
    denied(alice.user_grant_role, "alice", "root")
    denied(alice.auth_disable)


def test_lists_and_roles(root, alice):
    assert root.user_list().users == ["alice", "root"]
    assert root.role_list().roles == ["root", "writer"]
    assert root.user_get("alice").roles == ["writer"]
    first, second = root.role_get("writer").perm
    assert (first.key, first.range_end, first.permType) == (b"alice/", b"alice0", authpbPermissionType.READWRITE)
    assert (second.key, second.range_end) == (b"public/", b"public0")
    assert alice.user_get("alice").roles == ["writer"]
    denied(alice.user_get, "root")


def test_names_that_are_there_or_not(root):
    for exception, call, args in (
        (errors.ErrUserAlreadyExist, root.user_add, ("alice", "x")),
        (errors.ErrUserNotFound, root.user_get, ("nobody",)),
        (errors.ErrUserEmpty, root.user_add, ("", "x")),
        (errors.ErrRoleAlreadyExist, root.role_add, ("writer",)),
        (errors.ErrRoleNotFound, root.role_get, ("nothing",)),
        (errors.ErrRoleNotGranted, root.user_revoke_role, ("alice", "root")),
        (errors.ErrInvalidAuthMgmt, root.user_delete, ("root",)),
    ):
        with pytest.raises(exception):
            call(*args)


def test_a_role_taken_away_ends_the_right(root):
    root.user_add("bob", "secret")
    root.role_add("visitor")
    root.role_grant_permission("visitor", "public/a", permType=authpbPermissionType.READ)
    root.user_grant_role("bob", "visitor")
    with client_of(("bob", "secret")) as bob:
        assert bob.range("public/a").count == 1
        # The client's schema is of a time when this key was text: it does not encode it.
        root.role_revoke_permission("visitor", b64("public/a"))
        denied(bob.range, "public/a")
        root.role_delete("visitor")
        assert "roles" not in root.user_get("bob")
        root.user_change_password("bob", "another")
        with pytest.raises(errors.ErrAuthFailed):
            bob.auth("bob", "secret")
        bob.auth("bob", "another")
        root.user_delete("bob")
        with pytest.raises(errors.ErrAuthFailed):
            bob.auth("bob", "another")
    assert root.user_list().users == ["alice", "root"]
