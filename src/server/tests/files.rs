//! The data dir, who lives there, and the listeners.

use super::*;
use crate::members::Members;

/// Opens the file of a fresh data dir, and establishes who the member is.
fn establish(data_dir: &Path, config: &Config, advertised: &[&str]) -> Result<Members, ServerError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let data_dir = DataDir::open(&*disk, data_dir)?;
    let db = Db::open(disk, &data_dir.db_path(), &bolt::Options { map_bytes_max: 1 << 30 })?;
    let advertised: Vec<String> = advertised.iter().map(|url| (*url).to_owned()).collect();
    identity::establish(&db, config, &advertised)
}

#[test]
fn a_second_process_is_refused_by_name_and_pid() {
    let dir = temp_dir();
    let path = dir.path().join("a/b/data");
    let first = DataDir::open(&RealDisk, &path).expect("a fresh data dir");
    assert!(path.join("member/wal").is_dir() && path.join("member/snap").is_dir());
    let error = DataDir::open(&RealDisk, &path).expect_err("in use").to_string();
    let expected = format!("the data dir {} is in use by another process (pid {})", path.display(), std::process::id());
    assert!(error.starts_with(&expected) && error.contains("--data-dir"), "{error}");

    first.release().expect("given up");
    DataDir::open(&RealDisk, &path).expect("free again");
}

#[test]
fn a_data_dir_that_is_a_file_is_told_so() {
    let dir = temp_dir();
    let path = dir.path().join("data");
    std::fs::write(&path, "").expect("a file");
    let error = DataDir::open(&RealDisk, &path).expect_err("a file").to_string();
    assert!(error.starts_with(&format!("cannot create the data dir {}: ", path.display())), "{error}");
}

#[test]
fn the_first_start_decides_who_a_member_is() {
    let dir = temp_dir();
    let mut config = config(dir.path());
    let fresh = establish(dir.path(), &config, &["http://127.0.0.1:1"]).expect("a fresh data dir");
    // As etcd computes them for its default flags (known from its logs).
    assert_eq!((fresh.local_id(), fresh.cluster_id()), (0x8e9e_05c5_2164_694d, 0xcdf8_1819_4e3a_8c32));
    assert_eq!(fresh.list().len(), 1);
    assert_eq!(fresh.list()[0].client_urls, ["http://127.0.0.1:1"]);

    config.name = "renamed".into();
    config.initial_advertise_peer_urls = vec!["http://elsewhere:1".into()];
    let again = establish(dir.path(), &config, &["http://127.0.0.1:2"]).expect("its data dir");
    assert_eq!((again.local_id(), again.cluster_id()), (fresh.local_id(), fresh.cluster_id()));
    let members = again.list();
    assert_eq!(members.len(), 1);
    assert_eq!((&members[0].name[..], &members[0].client_urls[0][..]), ("renamed", "http://127.0.0.1:2"));
}

#[test]
fn a_file_of_another_etcd_keeps_its_member() {
    let dir = temp_dir();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let data_dir = DataDir::open(&*disk, dir.path()).expect("a data dir");
    let db = Db::open(disk, &data_dir.db_path(), &bolt::Options { map_bytes_max: 1 << 30 }).expect("a file");
    let add = |id: u64| {
        let mut txn = db.write().expect("a transaction");
        txn.create_bucket_if_missing(buckets::MEMBERS).expect("a bucket");
        let json = format!(r#"{{"id":{id},"peerURLs":["http://a:1"],"name":"a","clientURLs":["http://a:2"]}}"#);
        txn.put(buckets::MEMBERS, format!("{id:x}").as_bytes(), json.as_bytes()).expect("a member");
        txn.commit().expect("a commit");
    };
    let config = config(dir.path());
    let establish = || identity::establish(&db, &config, &["http://b:3".to_owned()]);

    add(0x77);
    let members = establish().expect("one member");
    assert_eq!((members.local_id(), members.cluster_id()), (0x77, crate::members::cluster_id(&[0x77])));
    assert_eq!(members.list()[0].client_urls, ["http://b:3"]);

    add(0x78);
    assert_eq!(establish().expect("ids are stored by now").local_id(), 0x77);
}

#[test]
fn advertised_are_the_addresses_that_were_found() {
    let dir = temp_dir();
    let mut config = config(dir.path());
    config
        .listen_client_urls
        .push(ListenUrl { address: "0.0.0.0:0".parse().expect("an address"), url: "http://0.0.0.0:0".into() });
    let listeners = listen::bind(&config.listen_client_urls, "--listen-client-urls").expect("free ports");
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().expect("an address").port()).collect();
    let found = listen::advertised_urls(&config, &listeners).expect("addresses");
    assert_eq!(found, [format!("http://127.0.0.1:{}", ports[0]), format!("http://localhost:{}", ports[1])]);

    config.advertise_client_urls = vec!["http://name:1".into()];
    assert_eq!(listen::advertised_urls(&config, &listeners).expect("as configured"), ["http://name:1"]);
}
