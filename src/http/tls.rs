//! TLS for clients: certificates that are read again when their files change, handshakes with a limit on their time, and the
//! name in a client's certificate.
//!
//! A handshake runs in its connection's own task: a client that stalls in it holds up nobody else. Files that no longer fit
//! together (a rotation that is half done) are tried again later; until then what was loaded last stays in use.
//!
//! Names are read by x509-parser: rustls verifies certificates but does not tell what is in them, and x509-parser is the
//! maintained reader of the DER family, the one its own test tools use.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, SupportedProtocolVersion,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::{TlsFiles, TlsVersion};

/// Longest time a handshake may take. etcd had none, which was a way to stop it (GHSA-6vch-q96h-7gc3).
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Shortest time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Largest certificate or key file.
const PEM_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// What is spoken inside, by preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why certificates cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Certificate and key do not go together.
    #[error("the key in {} is not that of the certificate in {}", key.display(), cert.display())]
    Mismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The TLS library's refusal.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Certificates in use. Read again when their files change.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    /// Files that were refused, so that one refusal makes one line in the log.
    refused: Option<Stamps>,
    looked: Instant,
}

/// What tells one state of the files from another: time of change, length and inode of each.
type Stamps = Vec<Option<(SystemTime, u64, u64)>>;

impl Tls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Files that cannot be read, hold something else, or do not go together.
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let stamps = stamps(&files);
        let config = Arc::new(server_config(&files)?);
        Ok(Tls { files, loaded: Mutex::new(Loaded { config, stamps, refused: None, looked: Instant::now() }) })
    }

    /// Makes a connection of a stream. The name in the client's certificate comes with it, if it had to have one.
    pub(super) async fn handshake<Io>(self: &Arc<Self>, io: Io) -> io::Result<(TlsStream<Io>, Option<String>)>
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current().await);
        let stream = timeout(HANDSHAKE_MAX, acceptor.accept(io)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let certificates = stream.get_ref().1.peer_certificates();
        let name = certificates.and_then(|chain| chain.first()).and_then(common_name);
        Ok((stream, name))
    }

    async fn current(self: &Arc<Self>) -> Arc<ServerConfig> {
        if self.is_look_due() {
            let tls = Arc::clone(self);
            // A look that panicked changed nothing: what is loaded stays in use.
            if let Err(error) = tokio::task::spawn_blocking(move || tls.look()).await {
                tracing::error!(%error, "the certificates' files could not be looked at");
            }
        }
        Arc::clone(&self.loaded.lock().config)
    }

    fn is_look_due(&self) -> bool {
        let mut loaded = self.loaded.lock();
        let due = loaded.looked.elapsed() >= LOOK_INTERVAL;
        if due {
            loaded.looked = Instant::now();
        }
        due
    }

    /// Reads the files again if they have changed.
    pub(super) fn look(&self) {
        // Before the files: what changes while they are read is seen as a change by the next look.
        let found = stamps(&self.files);
        if self.loaded.lock().stamps == found {
            return;
        }
        let read = server_config(&self.files);
        let mut loaded = self.loaded.lock();
        match read {
            Ok(config) => {
                tracing::info!(cert = %self.files.cert.display(), "the certificates have changed and are in use");
                *loaded = Loaded { config: Arc::new(config), stamps: found, refused: None, looked: loaded.looked };
            }
            Err(error) if loaded.refused.as_ref() != Some(&found) => {
                tracing::warn!(%error, "the certificates have changed and are of no use: the old ones stay");
                loaded.refused = Some(found);
            }
            Err(_) => {}
        }
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    [Some(&files.cert), Some(&files.key), files.trusted_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| stamp(path))
        .collect()
}

fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.cert)?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    check_pair(files, &provider, &chain, &key)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(files.min_version))
        .map_err(setup)?;
    let builder = match &files.trusted_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let authorities = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider).build().map_err(setup)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(setup)?;
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

fn versions(min: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    match min {
        TlsVersion::Tls12 => vec![&TLS13, &TLS12],
        TlsVersion::Tls13 => vec![&TLS13],
    }
}

pub(super) fn setup(error: impl std::fmt::Display) -> TlsError {
    TlsError::Setup(error.to_string())
}

/// Refuses a key that is not the certificate's, in words that name both files.
fn check_pair(
    files: &TlsFiles,
    provider: &CryptoProvider,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<(), TlsError> {
    let signing = provider.key_provider.load_private_key(key.clone_key());
    let signing = signing.map_err(|error| content(&files.key, format!("the key is of no use: {error}")))?;
    let public = |certificate: &CertificateDer<'_>| {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        Some(parsed.public_key().raw.to_vec())
    };
    let certified = chain.first().and_then(public);
    let certified = certified.ok_or_else(|| content(&files.cert, "the first certificate cannot be read"))?;
    match signing.public_key() {
        Some(own) if own.as_ref() != certified => {
            Err(TlsError::Mismatch { cert: files.cert.clone(), key: files.key.clone() })
        }
        _ => Ok(()),
    }
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| content(path, format!("bad PEM: {error}")))?;
    if found.is_empty() {
        return Err(content(path, "holds no certificate (a PEM block that says BEGIN CERTIFICATE)"));
    }
    Ok(found)
}

pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    use tokio_rustls::rustls::pki_types::pem::Error;

    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| match error {
        Error::NoItemsFound => content(path, "holds no private key (a PEM block that says BEGIN PRIVATE KEY)"),
        error => content(path, format!("bad PEM: {error}")),
    })
}

pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| content(path, format!("a certificate is of no use: {error}")))?;
    }
    Ok(store)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > PEM_FILE_BYTES_MAX {
        return Err(content(path, format!("{bytes} bytes are more than {PEM_FILE_BYTES_MAX}")));
    }
    fs::read(path).map_err(failed)
}

fn content(path: &Path, what: impl Into<String>) -> TlsError {
    TlsError::Content { path: path.to_owned(), what: what.into() }
}

/// The common name in a certificate's subject: the last one, if there are several, as Go's reader has it.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().last()?.as_str().ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}
