//! Who may do what, and how long that holds.

use super::{Rig, key, range};
use crate::{auth::Identity, error::ApiError};

#[test]
fn without_authentication_everybody_may_do_everything() {
    let rig = Rig::new();
    let nobody = rig.store.identify(Some("no.token"), None).unwrap();
    assert_eq!(nobody, Identity::default());
    assert!(rig.store.rights(&nobody).unwrap().write(&range("\0", "\0")).is_ok());
    assert!(rig.store.check_admin("").is_ok() && rig.store.check_user("").is_ok());
}

#[test]
fn with_authentication_nobody_may_do_nothing() {
    let rig = Rig::enabled();
    let nobody = rig.store.identify(None, None).unwrap();
    assert_eq!(rig.store.rights(&nobody).unwrap_err(), ApiError::UserEmpty);
    assert_eq!(rig.store.check_user(""), Err(ApiError::UserEmpty));
    assert_eq!(rig.store.check_admin(""), Err(ApiError::UserEmpty));
}

#[test]
fn users_may_what_their_roles_permit_and_root_everything() {
    let rig = Rig::enabled();
    let ann = rig.store.rights_now("ann").unwrap();
    assert!(ann.read(&key("k")).is_ok());
    for denied in [ann.write(&key("k")), ann.read(&key("l")), ann.read(&range("k", "l")), ann.read(&range("k", "\0"))] {
        assert_eq!(denied, Err(ApiError::PermissionDenied));
    }
    let root = rig.store.rights_now("root").unwrap();
    assert!(root.are_unlimited() && root.write(&range("\0", "\0")).is_ok() && root.read(&range("b", "a")).is_ok());
    assert_eq!(rig.store.check_admin("ann"), Err(ApiError::PermissionDenied));
    assert!(rig.store.check_user("bob").is_ok(), "a user without roles is one");
    for stranger in [rig.store.check_user("eve"), rig.store.check_admin("eve")] {
        assert_eq!(stranger, Err(ApiError::PermissionDenied));
    }
}

#[test]
fn the_role_root_given_to_another_user_opens_everything_to_it() {
    let mut rig = Rig::enabled();
    rig.grant_role("ann", "root").unwrap();
    assert!(rig.store.check_admin("ann").is_ok());
    rig.revoke_role("ann", "root").unwrap();
    assert_eq!(rig.store.check_admin("ann"), Err(ApiError::PermissionDenied));
    assert!(rig.store.rights_now("ann").unwrap().read(&key("k")).is_ok(), "the other role stays");
}

#[test]
fn who_was_looked_at_before_a_change_is_old() {
    let mut rig = Rig::enabled();
    let ann = Identity { user: "ann".into(), revision: rig.store.revision() };
    assert!(rig.store.rights(&ann).is_ok());
    rig.add_role("unrelated").unwrap();
    assert_eq!(rig.store.rights(&ann).unwrap_err(), ApiError::AuthOldRevision);
}

#[test]
fn every_change_is_noticed_whichever_it_is() {
    let mut rig = Rig::enabled();
    let mut seen = rig.store.changes();
    let mut notice = |rig: &Rig, what: &str| {
        assert_ne!(rig.store.changes(), seen, "{what}");
        seen = rig.store.changes();
    };
    rig.grant("reader", 1, "k", "").unwrap();
    notice(&rig, "grant");
    rig.revoke("reader", "k", "").unwrap();
    notice(&rig, "revoke");
    rig.revoke_role("ann", "reader").unwrap();
    notice(&rig, "revoke role");
    rig.grant_role("ann", "reader").unwrap();
    notice(&rig, "grant role");
    rig.delete_role("reader").unwrap();
    notice(&rig, "delete role");
    rig.delete_user("ann").unwrap();
    notice(&rig, "delete user");
    rig.keep(|store| Ok(store.disable())).unwrap();
    notice(&rig, "disable");
    rig.keep(|store| store.enable()).unwrap();
    notice(&rig, "enable");
}

#[test]
fn a_certificates_name_is_a_user_when_there_is_no_token() {
    let rig = Rig::enabled();
    let identity = rig.store.identify(None, Some("ann")).unwrap();
    assert_eq!(identity, Identity { user: "ann".into(), revision: rig.store.revision() });
    assert!(rig.store.rights(&identity).unwrap().read(&key("k")).is_ok());
    assert_eq!(rig.store.identify(Some("bad.1"), Some("ann")), Err(ApiError::InvalidAuthToken), "a token counts first");
    let stranger = rig.store.identify(None, Some("eve")).unwrap();
    assert_eq!(rig.store.rights(&stranger).unwrap_err(), ApiError::PermissionDenied);
}
