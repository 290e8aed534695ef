//! What each change does and refuses, and what the file keeps of it.

use prost::Message as _;

use super::{Rig, key};
use crate::{
    error::ApiError,
    mvcc::buckets,
    proto::{authpb, etcdserverpb as pb},
};

#[test]
fn every_change_counts_the_revision_up_and_what_is_none_does_not() {
    let mut rig = Rig::new();
    assert_eq!(rig.store.revision(), 1);
    rig.add_user("ann").unwrap();
    rig.add_role("reader").unwrap();
    rig.grant("reader", 0, "k", "").unwrap();
    rig.grant("reader", 0, "k", "").unwrap();
    rig.grant_role("ann", "reader").unwrap();
    assert_eq!(rig.store.revision(), 6, "granting a permission again counts, as in etcd");
    rig.grant_role("ann", "reader").unwrap();
    assert_eq!(rig.store.revision(), 6, "granting a role again does not");
    rig.change_password("ann").unwrap();
    rig.revoke_role("ann", "reader").unwrap();
    rig.revoke("reader", "k", "").unwrap();
    rig.delete_role("reader").unwrap();
    rig.delete_user("ann").unwrap();
    assert_eq!(rig.store.revision(), 11);
    for refused in [rig.delete_user("ann"), rig.delete_role("reader"), rig.grant("reader", 0, "k", "")] {
        refused.unwrap_err();
    }
    assert_eq!(rig.store.revision(), 11);
}

#[test]
fn authentication_needs_root_and_its_role() {
    let mut rig = Rig::new();
    assert_eq!(rig.keep(|store| store.enable()), Err(ApiError::RootUserNotExist));
    rig.add_user("root").unwrap();
    assert_eq!(rig.keep(|store| store.enable()), Err(ApiError::RootRoleNotExist));
    rig.grant_role("root", "root").unwrap();
    rig.keep(|store| store.enable()).unwrap();
    assert!(rig.store.is_enabled());
    assert_eq!(rig.store.revision(), 3, "enabling is no change of users or roles");
    rig.keep(|store| store.enable()).unwrap();
    rig.keep(|store| Ok(store.disable())).unwrap();
    rig.keep(|store| Ok(store.disable())).unwrap();
    assert_eq!((rig.store.is_enabled(), rig.store.revision()), (false, 4), "disabling is one, once");
}

#[test]
fn nobody_locks_everybody_out() {
    let mut rig = Rig::enabled();
    rig.add_role("root").unwrap();
    assert_eq!(rig.delete_user("root"), Err(ApiError::InvalidAuthManagement));
    assert_eq!(rig.revoke_role("root", "root"), Err(ApiError::InvalidAuthManagement));
    assert_eq!(rig.delete_role("root"), Err(ApiError::InvalidAuthManagement));
    rig.keep(|store| Ok(store.disable())).unwrap();
    rig.revoke_role("root", "root").unwrap();
    rig.delete_role("root").unwrap();
    rig.delete_user("root").unwrap();
}

#[test]
fn refusals_are_etcds() {
    let mut rig = Rig::enabled();
    assert_eq!(rig.add_user(""), Err(ApiError::UserEmpty));
    assert_eq!(rig.add_user("ann"), Err(ApiError::UserExists));
    assert_eq!(rig.delete_user("eve"), Err(ApiError::UserNotFound));
    assert_eq!(rig.change_password("eve"), Err(ApiError::UserNotFound));
    assert_eq!(rig.grant_role("eve", "nothing"), Err(ApiError::UserNotFound));
    assert_eq!(rig.grant_role("ann", "nothing"), Err(ApiError::RoleNotFound));
    assert_eq!(rig.revoke_role("eve", "reader"), Err(ApiError::UserNotFound));
    assert_eq!(rig.revoke_role("bob", "reader"), Err(ApiError::RoleNotGranted));
    assert_eq!(rig.add_role(""), Err(ApiError::RoleEmpty));
    assert_eq!(rig.add_role("reader"), Err(ApiError::RoleExists));
    assert_eq!(rig.delete_role("nothing"), Err(ApiError::RoleNotFound));
    assert_eq!(rig.grant("nothing", 0, "k", ""), Err(ApiError::RoleNotFound));
    for (key, end) in [("", ""), ("", "z"), ("b", "a"), ("a", "a")] {
        assert_eq!(rig.grant("reader", 0, key, end), Err(ApiError::InvalidAuthManagement), "{key:?} {end:?}");
    }
    let nothing = pb::AuthRoleGrantPermissionRequest { name: "nothing".into(), perm: None };
    assert_eq!(rig.keep(|store| store.role_grant_permission(&nothing)), Err(ApiError::PermissionNotGiven));
    assert_eq!(rig.revoke("nothing", "k", ""), Err(ApiError::RoleNotFound));
    assert_eq!(rig.revoke("reader", "k", "z"), Err(ApiError::PermissionNotGranted));
}

#[test]
fn a_permission_is_known_by_its_exact_range() {
    let mut rig = Rig::new();
    rig.add_role("r").unwrap();
    for (kind, key, end) in [(0, "b", ""), (2, "b", "c"), (0, "a", ""), (1, "b", ""), (0, "b", "c")] {
        rig.grant("r", kind, key, end).unwrap();
    }
    let of_role = |rig: &Rig| -> Vec<(i32, String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let permissions = rig.store.permissions_of("r").unwrap();
        permissions.iter().map(|p| (p.perm_type, text(&p.key), text(&p.range_end))).collect()
    };
    let expected = |all: &[(i32, &str, &str)]| -> Vec<_> {
        all.iter().map(|(kind, key, end)| (*kind, (*key).to_owned(), (*end).to_owned())).collect()
    };
    assert_eq!(of_role(&rig), expected(&[(0, "a", ""), (1, "b", ""), (0, "b", "c")]));
    rig.revoke("r", "b", "c").unwrap();
    assert_eq!(of_role(&rig), expected(&[(0, "a", ""), (1, "b", "")]));
}

#[test]
fn a_role_that_goes_goes_from_everybody() {
    let mut rig = Rig::enabled();
    rig.grant_role("bob", "reader").unwrap();
    rig.delete_role("reader").unwrap();
    for user in ["ann", "bob"] {
        assert_eq!(rig.store.roles_of(user), Ok(vec![]));
        assert_eq!(rig.store.rights_now(user).unwrap().read(&key("k")), Err(ApiError::PermissionDenied));
    }
    let rig = rig.restored();
    assert_eq!(rig.store.roles_of("ann"), Ok(vec![]));
}

#[test]
fn the_file_holds_what_etcds_file_holds() {
    let rig = Rig::enabled();
    assert_eq!(
        rig.pairs(buckets::AUTH),
        [("authEnabled".into(), vec![1].into()), ("authRevision".into(), 8_u64.to_be_bytes().to_vec().into()),]
    );
    let (name, root) = rig.pairs(buckets::AUTH_USERS).pop().unwrap();
    // Seen in the file of a real one: 1 name, 2 password, 3 roles, 4 options, which are there and empty.
    let expected = [b"\x0a\x04root\x12\x04hash".as_slice(), b"\x1a\x04root", b"\x22\x00"].concat();
    assert_eq!((name.as_ref(), root.as_ref()), (b"root".as_slice(), expected.as_slice()));
    let (_, role) = rig.pairs(buckets::AUTH_ROLES).pop().unwrap();
    let role = authpb::Role::decode(role).unwrap();
    assert_eq!((role.name.as_ref(), role.key_permission.len()), (b"reader".as_slice(), 1));
}

#[test]
fn what_is_restored_is_what_was_there() {
    let mut rig = Rig::enabled();
    let request = pb::AuthUserAddRequest {
        name: "cert".into(),
        options: Some(authpb::UserAddOptions { no_password: true }),
        ..Default::default()
    };
    rig.keep(|store| store.user_add(&request)).unwrap();
    let revision = rig.store.revision();
    let rig = rig.restored();
    assert_eq!((rig.store.is_enabled(), rig.store.revision()), (true, revision));
    assert_eq!(rig.store.user_names(), ["ann", "bob", "cert", "root"]);
    assert_eq!(rig.store.role_names(), ["reader"]);
    assert!(rig.store.rights_now("ann").unwrap().read(&key("k")).is_ok());
    assert!(rig.store.check_admin("root").is_ok());
    assert_eq!(rig.store.credentials("cert"), Err(ApiError::NoPasswordUser));
    assert_eq!(rig.store.credentials("ann").unwrap().unwrap().hash.as_ref(), b"hash");
}

#[test]
fn damaged_records_are_named() {
    let store = Rig::new().store;
    let user = authpb::User { name: "ann".into(), ..Default::default() }.encode_to_vec();
    for (auth, users, roles, named) in [
        (vec![("authRevision".into(), "short".into())], vec![], vec![], "8 bytes"),
        (vec![], vec![("ann".into(), "\u{8}".into())], vec![], "ann"),
        (vec![], vec![("bob".into(), user.into())], vec![], "bob"),
        (vec![], vec![], vec![("r".into(), "\u{8}".into())], "\"r\""),
    ] {
        let error = store.restore(&auth, &users, &roles).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    assert_eq!(store.revision(), 1);
}
