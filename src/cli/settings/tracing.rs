//! Where traces go.

use crate::config::TracingConfig;

use super::{FlagError, within, wrong};
use crate::cli::flags::ServeFlags;

const ADDRESS: &str = "distributed-tracing-address";
const ADDRESS_DEFAULT: &str = "http://localhost:4318";
/// OTLP's port for gRPC, which etcd speaks.
const GRPC_PORT: &str = ":4317";
/// Where collectors take traces.
const TRACES_PATH: &str = "/v1/traces";
const SAMPLES_MAX: u32 = 1_000_000;

/// What the flags say of traces; `None`: there are none.
pub(super) fn tracing(flags: &ServeFlags) -> Result<Option<TracingConfig>, FlagError> {
    let samples =
        within("distributed-tracing-sampling-rate", flags.distributed_tracing_sampling_rate, 0..=SAMPLES_MAX)?;
    let given = flags.distributed_tracing_address.as_deref().map(str::trim).filter(|address| !address.is_empty());
    let is_on = flags.enable_distributed_tracing.unwrap_or(given.is_some());
    if !is_on {
        return Ok(None);
    }
    let address = given.unwrap_or(ADDRESS_DEFAULT);
    let endpoint = endpoint(address).or_else(|problem| wrong(ADDRESS, problem))?;
    let trusted_ca = flags.distributed_tracing_trusted_ca_file.clone();
    if endpoint.starts_with("https://") && trusted_ca.is_none() {
        return wrong(ADDRESS, format!("{address}: https needs --distributed-tracing-trusted-ca-file"));
    }
    if flags.distributed_tracing_service_name.is_empty() {
        return wrong("distributed-tracing-service-name", "must not be empty");
    }
    if address.trim_end_matches('/').ends_with(GRPC_PORT) {
        tracing::warn!(address, "traces are sent by HTTP, and this is a port for gRPC as a rule; HTTP has 4318");
    }
    Ok(Some(TracingConfig {
        endpoint,
        trusted_ca,
        service_name: flags.distributed_tracing_service_name.clone(),
        samples_per_million: samples,
    }))
}

/// The URL for traces of a collector at a URL, or at a host and port.
fn endpoint(address: &str) -> Result<String, String> {
    let wrong = || format!("expected a URL such as {ADDRESS_DEFAULT}, or HOST:PORT");
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => return Err(wrong()),
        None => ("http", address),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let needs_port = !address.contains("://");
    if authority.is_empty() || rest.contains(['@', '?', '#', ' ']) || (needs_port && !has_port) {
        return Err(wrong());
    }
    let rest = rest.trim_end_matches('/');
    let path = if rest.ends_with(TRACES_PATH) { "" } else { TRACES_PATH };
    Ok(format!("{scheme}://{rest}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (address, expected) in [
            ("localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://collector", "http://collector/v1/traces"),
            ("https://c.example:1/", "https://c.example:1/v1/traces"),
            ("http://c:1/otlp", "http://c:1/otlp/v1/traces"),
            ("http://c:1/v1/traces", "http://c:1/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(endpoint(address).as_deref(), Ok(expected), "{address}");
        }
        // A password would be in logs and listings.
        for address in ["", "collector", "grpc://c:1", "unix:///x", "http://", "http://u:p@c:1", "http://c:1/?a=b"] {
            assert!(endpoint(address).is_err(), "{address}");
        }
    }
}
