//! How clients are met: TLS, origins, names. What does not fit together is refused here, before anything is opened.

use std::time::Duration;

use crate::config::{Allowed, ListenUrl, TlsFiles, TlsVersion, Transport};

use super::{FlagError, wrong};
use crate::cli::flags::{ServeFlags, TlsMinVersion};

/// Most origins or names of one flag.
const ALLOWED_MAX: usize = 1024;
const PING_INTERVAL_MIN: Duration = Duration::from_millis(100);
const STALL_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Checks what the flags say of clients, for the listeners that are asked for.
pub(super) fn transport(
    flags: &ServeFlags,
    clients: &[ListenUrl],
    metrics: &[ListenUrl],
) -> Result<Transport, FlagError> {
    let tls = tls_files(flags)?;
    for (flag, listeners) in [("listen-client-urls", clients), ("listen-metrics-urls", metrics)] {
        match (&tls, listeners.iter().find(|listener| listener.is_tls())) {
            (None, Some(listener)) => {
                return wrong(flag, format!("{}: https needs --cert-file and --key-file", listener.url));
            }
            (Some(_), None) if flag == "listen-client-urls" => {
                tracing::warn!("no --listen-client-urls is an https URL: clients are served without the certificate");
            }
            _ => {}
        }
    }
    Ok(Transport {
        tls,
        cors: allowed("cors", &flags.cors, check_origin)?,
        hosts: allowed("host-whitelist", &flags.host_whitelist, check_host)?,
        gateway: flags.enable_grpc_gateway,
        ping_interval: ping_interval(flags)?,
        stall_timeout: stall_timeout(flags)?,
    })
}

fn ping_interval(flags: &ServeFlags) -> Result<Duration, FlagError> {
    match flags.client_ping_interval {
        short if short < PING_INTERVAL_MIN => {
            wrong("client-ping-interval", format!("{short:?} is less than {PING_INTERVAL_MIN:?}"))
        }
        interval => Ok(interval),
    }
}

fn stall_timeout(flags: &ServeFlags) -> Result<Duration, FlagError> {
    let (timeout, interval) = (flags.client_stall_timeout, flags.client_ping_interval);
    if timeout < STALL_TIMEOUT_MIN {
        return wrong("client-stall-timeout", format!("{timeout:?} is less than {STALL_TIMEOUT_MIN:?}"));
    }
    if timeout < interval {
        return wrong("client-stall-timeout", format!("{timeout:?} is less than --client-ping-interval {interval:?}"));
    }
    Ok(timeout)
}

fn tls_files(flags: &ServeFlags) -> Result<Option<TlsFiles>, FlagError> {
    if flags.client_cert_auth && flags.trusted_ca_file.is_none() {
        return wrong("client-cert-auth", "needs --trusted-ca-file: whose certificates are to be trusted?");
    }
    match (&flags.cert_file, &flags.key_file) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
            trusted_ca: flags.trusted_ca_file.clone(),
            min_version: match flags.tls_min_version {
                TlsMinVersion::Tls12 => TlsVersion::Tls12,
                TlsMinVersion::Tls13 => TlsVersion::Tls13,
            },
        })),
        (Some(_), None) => wrong("cert-file", "needs the certificate's key: give --key-file too"),
        (None, Some(_)) => wrong("key-file", "needs the key's certificate: give --cert-file too"),
        (None, None) if flags.trusted_ca_file.is_some() => {
            wrong("trusted-ca-file", "is for https URLs, which need --cert-file and --key-file")
        }
        (None, None) => Ok(None),
    }
}

/// A list with commas. Nothing means any, as `*` does.
fn allowed(flag: &'static str, text: &str, check: fn(&str) -> Result<(), String>) -> Result<Allowed, FlagError> {
    let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if entries.is_empty() || entries.contains(&"*") {
        return Ok(Allowed::Any);
    }
    if entries.len() > ALLOWED_MAX {
        return wrong(flag, format!("at most {ALLOWED_MAX} entries are allowed"));
    }
    for entry in &entries {
        check(entry).or_else(|problem| wrong(flag, problem))?;
    }
    Ok(Allowed::Only(entries.into_iter().map(str::to_owned).collect()))
}

fn check_origin(origin: &str) -> Result<(), String> {
    let host = origin.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")).map(|(_, host)| host);
    match host {
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', '@']) && is_plain(host) => Ok(()),
        _ => Err(format!("{origin}: expected an origin such as https://console.example, or *")),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    if host.contains(['/', '?', '#', '@']) || !is_plain(host) {
        return Err(format!("{host}: expected a name or an address without a port, or *"));
    }
    Ok(())
}

/// Whether a text can stand in a header.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}
