//! Members that begin with a snapshot or a data file.

use super::*;
use crate::{members, mvcc::Bump};

fn options(file: &Path, data_dir: &Path) -> RestoreOptions {
    RestoreOptions {
        file: file.to_owned(),
        data_dir: data_dir.to_owned(),
        name: "restored".into(),
        peer_urls: vec!["http://b:1".into()],
        cluster_token: "token".into(),
        bump: None,
        skip_hash_check: false,
    }
}

fn hash(store: &Store) -> u32 {
    store.hash_keys(0).unwrap().hash
}

#[test]
fn keys_leases_and_users_stay_and_the_old_life_goes() {
    let dir = place();
    let path = sample(dir.path(), true);
    let (store, before) = open(&path).unwrap();
    store.stage(vec![write(buckets::ALARM, alarm_key(), "")]);
    store.end_entry(LogPosition { term: 1, index: 4 });
    flush(&store).unwrap();
    let (expected_hash, revision) = (hash(&store), store.revision());
    let kept: Vec<_> = [buckets::LEASE, buckets::AUTH, buckets::AUTH_USERS, buckets::AUTH_ROLES, buckets::ALARM]
        .map(|bucket| store.bucket_pairs(bucket).unwrap())
        .into();
    store.close().unwrap();

    // As a data file and as a snapshot.
    let snapshot = dir.path().join("snapshot");
    std::fs::write(&snapshot, with_hash(&path)).unwrap();
    for (number, (file, has_hash)) in [(&path, false), (&snapshot, true)].into_iter().enumerate() {
        let data_dir = dir.path().join(format!("new/{number}"));
        let report = restore_file(&disk(), &options(file, &data_dir)).unwrap();
        assert_eq!((report.has_hash, report.alarms), (has_hash, 1));
        assert_eq!((report.revisions.revision, report.revisions.revision_now), (revision, revision));
        let member_id = members::member_id(&["http://b:1".into()], "token");
        assert_eq!((report.member_id, report.cluster_id), (member_id, members::cluster_id(&[member_id])));

        let db = data_dir.join("member/snap/db");
        assert_eq!(check_file(&disk(), &db).unwrap().findings, []);
        assert!(!data_dir.join("member.part").exists() && data_dir.join("member/wal").is_dir());
        let (store, restored) = open(&db).unwrap();
        assert_eq!((hash(&store), store.revision()), (expected_hash, revision));
        assert_eq!(restored.position, LogPosition::default());
        assert_eq!(restored.lease_attachments, before.lease_attachments);
        let now: Vec<_> = [buckets::LEASE, buckets::AUTH, buckets::AUTH_USERS, buckets::AUTH_ROLES, buckets::ALARM]
            .map(|bucket| store.bucket_pairs(bucket).unwrap())
            .into();
        assert_eq!(now, kept);
        let members = Members::new(0, 0, Vec::new());
        members.restore(&store.bucket_pairs(buckets::MEMBERS).unwrap()).unwrap();
        assert_eq!(members.list().iter().map(|member| member.id).collect::<Vec<_>>(), [member_id]);
        assert_eq!(store.bucket_pairs(buckets::MEMBERS_REMOVED).unwrap(), []);
        let meta = store.bucket_pairs(buckets::META).unwrap();
        assert!(meta.iter().all(|(name, _)| name != "confState" && name != "consistent_index" && name != "term"));
        let error = restore_file(&disk(), &options(file, &data_dir)).unwrap_err();
        assert!(matches!(error, OfflineError::NotEmpty { .. }), "{error}");
    }
}

#[test]
fn revisions_jump_ahead_and_what_was_before_is_compacted() {
    let dir = place();
    let path = sample(dir.path(), true);
    let revision = snapshot_status(&disk(), &path).unwrap().file.revision;
    let data_dir = dir.path().join("data");
    let options = RestoreOptions { bump: Some(Bump { revisions: 1000 }), ..options(&path, &data_dir) };
    let report = restore_file(&disk(), &options).unwrap();
    assert_eq!(report.revisions.revision_now, revision + 1000);
    let db = data_dir.join("member/snap/db");
    assert_eq!(check_file(&disk(), &db).unwrap().findings, []);
    let (store, _) = open(&db).unwrap();
    assert_eq!((store.revision(), store.compact_revision()), (revision + 1000, revision + 1000));
    assert!(store.changes_since(revision, 1, 1).is_err());
    assert_eq!(put(&store, key(1), Bytes::from_static(b"next"), 0), revision + 1001);
    store.end_entry(LogPosition { term: 1, index: 1 });
    flush(&store).unwrap();
    // Another jump over the first: a file may live through it more than once.
    store.close().unwrap();
    let again = RestoreOptions { file: db, data_dir: dir.path().join("again"), ..options };
    assert_eq!(restore_file(&disk(), &again).unwrap().revisions.revision_now, revision + 2001);
    let too_far =
        RestoreOptions { bump: Some(Bump { revisions: i64::MAX }), data_dir: dir.path().join("far"), ..again };
    assert!(matches!(restore_file(&disk(), &too_far).unwrap_err(), OfflineError::Unfinished { .. }));
}

#[test]
fn a_file_that_cannot_be_trusted_is_refused_unless_one_insists() {
    let dir = place();
    let path = sample(dir.path(), true);
    let mut bytes = with_hash(&path);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let snapshot = dir.path().join("snapshot");
    std::fs::write(&snapshot, &bytes).unwrap();
    let data_dir = dir.path().join("data");
    let refused = restore_file(&disk(), &options(&snapshot, &data_dir)).unwrap_err();
    assert!(matches!(refused, OfflineError::WrongHash { .. }), "{refused}");
    assert!(!data_dir.exists(), "and nothing was begun");
    let insisting = RestoreOptions { skip_hash_check: true, ..options(&snapshot, &data_dir) };
    restore_file(&disk(), &insisting).unwrap();

    // Without a hash it is the structure that has to be sound.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let refused = restore_file(&disk(), &options(&path, &dir.path().join("other"))).unwrap_err();
    assert!(matches!(refused, OfflineError::Unsound { findings: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("page 1:") && refused.to_string().contains("--skip-hash-check"), "{refused}");
}

#[test]
fn a_member_does_not_start_where_a_restore_was_interrupted() {
    let dir = place();
    std::fs::create_dir_all(dir.path().join("member.part/snap")).unwrap();
    let error = crate::server::data_dir::DataDir::open(&RealDisk, dir.path()).unwrap_err().to_string();
    assert!(error.contains("a restore into it was begun and not finished"), "{error}");
    assert!(!dir.path().join("member").exists());
}
