//! TLS: handshakes, client certificates, rotation.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName},
        version::{TLS12, TLS13},
    },
};

use super::harness::{Member, MemberOptions};
use crate::{
    config::{TlsFiles, TlsVersion},
    http::{
        Tls,
        tls::{HANDSHAKE_MAX, common_name},
    },
};

/// An authority with the certificates it signs.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(super) struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(super) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn sign(&self, common_name: &str) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }
}

impl Authority {
    /// Writes its own certificate.
    pub(super) fn write(&self, path: &Path) {
        fs::write(path, self.0.pem()).unwrap();
    }
}

impl Identity {
    pub(super) fn write(&self, files: &TlsFiles) {
        fs::write(&files.cert, self.certificate.pem()).unwrap();
        fs::write(&files.key, self.key.serialize_pem()).unwrap();
    }

    fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }
}

pub(super) fn files(dir: &Path) -> TlsFiles {
    TlsFiles { cert: dir.join("cert.pem"), key: dir.join("key.pem"), trusted_ca: None, min_version: TlsVersion::Tls12 }
}

/// A client that trusts an authority, and shows a certificate if it has one.
fn connector(authority: &Authority, identity: Option<&Identity>, alpn: &str) -> TlsConnector {
    connector_of(authority, identity, alpn, &[&TLS13, &TLS12])
}

fn connector_of(
    authority: &Authority,
    identity: Option<&Identity>,
    alpn: &str,
    versions: &[&'static tokio_rustls::rustls::SupportedProtocolVersion],
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
            builder.with_client_auth_cert(vec![identity.der()], key).unwrap()
        }
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Both ends of a handshake; the server's certificate as the client saw it, and the client's name as the server did.
async fn shake(tls: &Arc<Tls>, connector: TlsConnector) -> Result<(CertificateDer<'static>, Option<String>), String> {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let localhost = ServerName::try_from("localhost").unwrap();
    let (client, server) = tokio::join!(
        async {
            let mut stream = connector.connect(localhost, client).await.map_err(|error| error.to_string())?;
            let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
            // In TLS 1.3 a client hears of a refusal only when it reads.
            let mut byte = [0];
            stream.read_exact(&mut byte).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(certificate)
        },
        async {
            let (mut stream, name) = tls.handshake(server).await.map_err(|error| error.to_string())?;
            stream.write_all(b"x").await.map_err(|error| error.to_string())?;
            stream.flush().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(name)
        }
    );
    let name = server?;
    Ok((client?, name))
}

#[tokio::test]
async fn a_client_certificate_is_required_and_names_its_client() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let files = TlsFiles { trusted_ca: Some(dir.path().join("ca.pem")), ..files(dir.path()) };
    authority.sign("server").write(&files);
    fs::write(dir.path().join("ca.pem"), authority.0.pem()).unwrap();
    let tls = Arc::new(Tls::load(files).unwrap());

    let alice = authority.sign("alice");
    let (_, name) = shake(&tls, connector(&authority, Some(&alice), "h2")).await.unwrap();
    assert_eq!(name.as_deref(), Some("alice"));
    let nobody = authority.sign("");
    assert_eq!(shake(&tls, connector(&authority, Some(&nobody), "h2")).await.unwrap().1, None);
    let refused = shake(&tls, connector(&authority, None, "h2")).await.unwrap_err();
    assert!(refused.contains("peer sent no certificates"), "{refused}");
    let mallory = other.sign("alice");
    let refused = shake(&tls, connector(&authority, Some(&mallory), "h2")).await.unwrap_err();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
}

#[test]
fn the_last_common_name_counts() {
    let authority = Authority::new("ours");
    assert_eq!(common_name(&authority.sign("bob").der()).as_deref(), Some("bob"));
    assert_eq!(common_name(&authority.sign("").der()), None);
    assert_eq!(common_name(&CertificateDer::from(b"no certificate".to_vec())), None);
}

#[tokio::test]
async fn the_lowest_version_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let files = files(dir.path());
    authority.sign("server").write(&files);
    for (min_version, speaks_12) in [(TlsVersion::Tls12, true), (TlsVersion::Tls13, false)] {
        let tls = Arc::new(Tls::load(TlsFiles { min_version, ..files.clone() }).unwrap());
        let old = connector_of(&authority, None, "h2", &[&TLS12]);
        assert_eq!(shake(&tls, old).await.is_ok(), speaks_12);
        shake(&tls, connector_of(&authority, None, "h2", &[&TLS13])).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_handshake_is_dropped_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    Authority::new("ours").sign("server").write(&files);
    let tls = Arc::new(Tls::load(files).unwrap());
    let (mut client, server) = tokio::io::duplex(1024);
    // The head of a record that announces more than ever comes.
    client.write_all(&[22, 3, 1, 1, 0, 1]).await.unwrap();
    let began = tokio::time::Instant::now();
    let error = tls.handshake(server).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(began.elapsed() >= HANDSHAKE_MAX && began.elapsed() < HANDSHAKE_MAX + Duration::from_secs(1));
}

#[tokio::test]
async fn changed_certificates_are_taken_up_and_bad_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let files = files(dir.path());
    let (first, second) = (authority.sign("first"), authority.sign("second"));
    first.write(&files);
    let tls = Arc::new(Tls::load(files.clone()).unwrap());
    let shown = async || shake(&tls, connector(&authority, None, "h2")).await.unwrap().0;
    assert_eq!(shown().await, first.der());

    // Half of a rotation: the key does not go with the certificate.
    fs::write(&files.cert, second.certificate.pem()).unwrap();
    tls.look();
    assert_eq!(shown().await, first.der());
    fs::write(&files.key, second.key.serialize_pem()).unwrap();
    tls.look();
    assert_eq!(shown().await, second.der());
    fs::remove_file(&files.key).unwrap();
    tls.look();
    assert_eq!(shown().await, second.der());
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let files = files(dir.path());
    let error = || Tls::load(files.clone()).unwrap_err().to_string();
    assert!(error().contains("cert.pem: No such file"), "{}", error());
    fs::write(&files.cert, "nothing of use").unwrap();
    assert!(error().contains("cert.pem: holds no certificate"), "{}", error());
    fs::write(&files.cert, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    assert!(error().contains("cert.pem: bad PEM"), "{}", error());
    let identity = authority.sign("server");
    identity.write(&files);
    Tls::load(files.clone()).unwrap();
    fs::write(&files.key, identity.certificate.pem()).unwrap();
    assert!(error().contains("key.pem: holds no private key"), "{}", error());
    fs::write(&files.key, authority.sign("other").key.serialize_pem()).unwrap();
    assert!(error().contains("key.pem is not that of the certificate in "), "{}", error());
    fs::write(&files.cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    assert!(error().contains("cert.pem: the first certificate cannot be read"), "{}", error());
    identity.write(&files);
    let with_ca = TlsFiles { trusted_ca: Some(dir.path().join("ca.pem")), ..files.clone() };
    let error = Tls::load(with_ca).unwrap_err().to_string();
    assert!(error.contains("ca.pem: No such file"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let files = files(dir.path());
    authority.sign("server").write(&files);
    let member = Member::with(MemberOptions { tls: Some(Tls::load(files).unwrap()), ..Default::default() }).await;

    let stream = tokio::net::TcpStream::connect(member.address).await.unwrap();
    let localhost = ServerName::try_from("localhost").unwrap();
    let mut stream = connector(&authority, None, "http/1.1").connect(localhost.clone(), stream).await.unwrap();
    let body = r#"{"key":"Zm9v","value":"YmFy"}"#;
    let length = body.len();
    let head =
        format!("POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(r#""revision":"2""#), "{answer}");

    // HTTP/2 begins with the server's settings: a frame of type 4.
    let stream = tokio::net::TcpStream::connect(member.address).await.unwrap();
    let mut stream = connector(&authority, None, "h2").connect(localhost, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4);
    drop(stream);

    // A client that stalls in its handshake holds up nobody, and not the member's end either.
    let stalled = tokio::net::TcpStream::connect(member.address).await.unwrap();
    member.stop().await;
    drop(stalled);
}
