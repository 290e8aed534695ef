//! TLS from the client's side, for the commands that speak to a member.
//!
//! The authorities are always given as a file: the machine's own are not asked, a member's certificate is seldom theirs.

use std::{io, path::Path, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, crypto::ring, pki_types::ServerName},
};

use super::tls::{TlsError, authorities, certificates, private_key, setup};

/// What is spoken inside: one stream at a time is all a command needs.
const PROTOCOL: &[u8] = b"http/1.1";

/// Whom to trust, and who we are.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
}

impl ClientTls {
    /// Trusts the authorities in the file `ca`; shows the certificate in the first file of `identity`, whose key is in
    /// the second.
    ///
    /// # Errors
    /// Files that cannot be read or do not hold what they should.
    pub fn load(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<ClientTls, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(setup)?
            .with_root_certificates(authorities(ca)?);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                builder.with_client_auth_cert(certificates(cert)?, private_key(key)?).map_err(setup)?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(ClientTls { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Makes a connection to a server that must be `host`, a name or an address.
    ///
    /// # Errors
    /// A server that is not, or that cannot be spoken to.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.connector.connect(name, stream).await
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}
