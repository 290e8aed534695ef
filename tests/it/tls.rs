//! TLS from outside: the flags, a client that must have a certificate, and certificates that change under a running member.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

use crate::{
    files::revgate,
    support::{ANSWER_MAX, Client, Server, wait_until},
};

/// A certificate and its key.
struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn sign(authority: &CertifiedIssuer<'static, KeyPair>, name: &str) -> Identity {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    Identity { certificate: params.signed_by(&key, authority).unwrap(), key }
}

impl Identity {
    /// Each file changes at once, as by a rotation that renames.
    fn write(&self, dir: &Path) {
        for (name, text) in [("cert.pem", self.certificate.pem()), ("key.pem", self.key.serialize_pem())] {
            fs::write(dir.join("new"), text).unwrap();
            fs::rename(dir.join("new"), dir.join(name)).unwrap();
        }
    }
}

/// The certificate a listener shows, and its answer to a put.
fn put(
    address: SocketAddr,
    authority: &CertifiedIssuer<'static, KeyPair>,
    identity: Option<&Identity>,
) -> std::io::Result<(CertificateDer<'static>, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
            builder.with_client_auth_cert(vec![identity.certificate.der().clone()], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let mut stream = StreamOwned::new(connection, stream);
    let body = r#"{"key":"YQ=="}"#;
    let length = body.len();
    let head = "POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nConnection: close";
    stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let shown = stream.conn.peer_certificates().expect("a handshake that was")[0].clone();
    Ok((shown, answer))
}

/// Where the server says it speaks TLS.
fn tls_address(server: &Server) -> SocketAddr {
    let output = server.output();
    let rest = output.split_once("https://").expect("an https URL in the greeting").1;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}

/// Where the server says its metrics are: without TLS, and with it.
fn metrics_addresses(server: &Server) -> [SocketAddr; 2] {
    let output = server.output();
    let line = output.lines().find_map(|line| line.strip_prefix("probes and metrics are on ")).expect("where they are");
    let (plain, secured) = line.split_once(", ").expect("two URLs");
    [plain.strip_prefix("http://"), secured.strip_prefix("https://")].map(|address| address.unwrap().parse().unwrap())
}

#[test]
fn a_member_with_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let authority = authority();
    let (first, second) = (sign(&authority, "first"), sign(&authority, "second"));
    first.write(dir.path());
    fs::write(path("ca.pem"), authority.pem()).unwrap();
    let (cert, key, ca) = (path("cert.pem"), path("key.pem"), path("ca.pem"));
    let flags = [
        "--listen-client-urls",
        "http://127.0.0.1:0,https://127.0.0.1:0",
        "--cert-file",
        &cert,
        "--key-file",
        &key,
        "--trusted-ca-file",
        &ca,
        "--client-cert-auth",
        "--listen-metrics-urls",
        "http://127.0.0.1:0,https://127.0.0.1:0",
    ];
    let server = Server::start_with(&dir.path().join("data"), &flags);
    let address = tls_address(&server);
    let alice = sign(&authority, "alice");
    let (shown, answer) = put(address, &authority, Some(&alice)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(&shown, first.certificate.der());
    put(address, &authority, None).expect_err("a client without a certificate");
    // A probe has none to show: it has a port of its own, without TLS or with the same.
    let [plain, secured] = metrics_addresses(&server);
    assert_eq!(Client::new(plain).get("/readyz").unwrap().status, 200);
    put(secured, &authority, None).expect_err("a probe without a certificate");
    let (_, answer) = put(secured, &authority, Some(&alice)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
    let stranger = sign(&self::authority(), "alice");
    put(address, &authority, Some(&stranger)).expect_err("a client with another authority's certificate");
    let members = server.client().call("/v3/cluster/member/list", &serde_json::json!({}));
    let urls: Vec<&str> =
        members["members"][0]["clientURLs"].as_array().unwrap().iter().flat_map(|url| url.as_str()).collect();
    assert_eq!(urls, [format!("http://{}", server.address()), format!("https://{address}")]);

    // The commands speak TLS too, in their own name.
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    alice.write(&own);
    let (own_cert, own_key) = (path("own/cert.pem"), path("own/key.pem"));
    let (endpoint, file) = (format!("https://localhost:{}", address.port()), path("snapshot"));
    let save = ["snapshot", "save", &file, "--endpoint", &endpoint, "--cacert", &ca];
    let (code, _, error) = revgate(&save);
    assert!(code == 1 && !error.is_empty(), "without a certificate: {error}");
    let (code, _, error) = revgate(&[&save[..], &["--cert", &own_cert, "--key", &own_key]].concat());
    assert_eq!((code, &error[..]), (0, ""));

    second.write(dir.path());
    wait_until("the new certificate", ANSWER_MAX, || {
        let (shown, answer) = put(address, &authority, Some(&alice)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        (&shown == second.certificate.der()).then_some(())
    });
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let authority = authority();
    sign(&authority, "first").write(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("other.pem"), sign(&authority, "other").key.serialize_pem()).unwrap();
    let (cert, key, other, none) = (path("cert.pem"), path("key.pem"), path("other.pem"), path("none.pem"));
    let url = ["--listen-client-urls", "https://127.0.0.1:0"];
    let data = dir.path().join("data");
    for (more, expected) in [
        (vec![], "https needs --cert-file and --key-file"),
        (vec!["--cert-file", &cert, "--key-file", &other], "is not that of the certificate in"),
        (vec!["--cert-file", &none, "--key-file", &key], "none.pem: No such file"),
        (vec!["--cert-file", &key, "--key-file", &key], "holds no certificate"),
    ] {
        let (status, said) = Server::refused_with(&data, &[&url[..], &more[..]].concat());
        assert!(!status.success() && said.contains(expected), "{more:?}: {status}: {said}");
        assert!(!data.exists(), "{more:?}");
    }
}
